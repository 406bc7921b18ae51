// Latency section: distribution of response times up to the highest percentiles.

import { axisLook, tip, tipLook } from '../chart';
import { analysed, armNames, type Page } from '../data';
import { choices, el, type Table } from '../dom';
import { Figure } from '../figure';
import { micros, plain } from '../format';
import { logAxis, spread } from '../scale';
import { colours, look, type Colours } from '../theme';

/** The curve ends where four nines end; what is rarer is the luck of a few events. */
const LAST = 0.9999;
const MARKS = [0.5, 0.9, 0.95, 0.99, 0.999, 0.9999];
/** Arms drawn at first, beside the baseline: those whose p99 is furthest from it. More would hide each other. */
const AT_FIRST = 5;

interface Curve {
  arm: string;
  run: number;
  runName: string;
  points: [quantile: number, us: number][];
}

export function latencySection(page: Page): HTMLElement {
  const section = el('section', { id: 'latency' }, el('h2', {}, 'Latency distributions'));
  const curves: Curve[] = analysed(page).flatMap(({ run, result, index }) =>
    result.arms.flatMap(arm => {
      const points = arm.latency_curve.filter(([q, us]) => q > 0 && q <= LAST && us > 0);
      return points.length > 1 ? [{ arm: arm.name, run: index, runName: run.name, points }] : [];
    }),
  );
  if (curves.length === 0) {
    section.append(el('p', { class: 'empty' }, 'No latency distribution was analysed.'));
    return section;
  }
  const several = page.runs.length > 1;
  const arms = armNames(page).filter(name => curves.some(curve => curve.arm === name));
  const baselines = new Set(analysed(page).map(({ result }) => result.baseline));
  const shown = atFirst(curves, arms, baselines);
  const label = (curve: Curve) => (several ? `${curve.arm}, ${curve.runName}` : curve.arm);
  const lookOf = (curve: Curve) =>
    several
      ? {
          ...look(colours(), arms.indexOf(curve.arm)),
          type: (['solid', 'dashed', 'dotted'] as const)[curve.run % 3],
        }
      : look(colours(), arms.indexOf(curve.arm));
  const buttons = choices(
    'Arms',
    arms.map((name, at) => ({ label: name, on: shown.has(name), colour: at })),
    false,
    on => {
      shown.clear();
      arms.forEach((name, at) => on[at] && shown.add(name));
      figure.draw();
    },
  );
  const table = (): Table => ({
    head: ['variant', 'run', 'quantile', 'latency us'],
    rows: curves.flatMap(curve => curve.points.map(([q, us]) => [curve.arm, curve.runName, q, us])),
    words: [0, 1],
  });
  const shortTable = (): Table => ({
    head: ['variant', ...(several ? ['run'] : []), ...MARKS.map(q => `p${percent(q)}`)],
    rows: curves.map(curve => [
      curve.arm,
      ...(several ? [curve.runName] : []),
      ...MARKS.map(q => micros(at(curve, q))),
    ]),
    words: several ? [0, 1] : [0],
  });
  const figure = new Figure({
    id: 'latency',
    title: 'Response time by percentile',
    hint: `All events of each variant's windows, from their intended start.${several ? ' Line style tells the runs apart: solid, dashed, dotted, in the order of the page.' : ''} Choose variants above the chart.`,
    label: () =>
      `Percentile curves, logarithmic, shown for ${[...shown].join(', ')}. ` +
      curves
        .filter(curve => shown.has(curve.arm))
        .map(curve => `${label(curve)}: median ${micros(at(curve, 0.5))}, p99 ${micros(at(curve, 0.99))}`)
        .join('; '),
    height: width => (width < 560 ? 340 : 420),
    controls: [buttons],
    table,
    shortTable,
    option: ({ colours: c, width }) => {
      const drawn = curves.filter(curve => shown.has(curve.arm));
      // Short runs have too few events for the last nines: the axis ends where the longest curve does.
      const rarest = Math.max(0.99, ...drawn.map(curve => curve.points.at(-1)?.[0] ?? 0));
      const marks = MARKS.filter(q => q <= rarest + 1e-9).map(x);
      const scale = logAxis(
        drawn.flatMap(curve => curve.points.filter(([q]) => q >= 0.5).map(([, us]) => us)),
      );
      return {
        grid: { left: 64, right: width < 560 ? 24 : 96, top: 36, bottom: 48 },
        xAxis: {
          ...axisLook(c),
          type: 'log',
          logBase: 10,
          // From the median on: 1 / (1 - q) makes each nine as wide as the one before.
          min: 2,
          max: x(rarest),
          name: 'percentile of events',
          nameLocation: 'middle',
          nameGap: 30,
          axisLabel: {
            ...axisLook(c).axisLabel,
            customValues: marks,
            formatter: (v: number) => `${percent(1 - 1 / v)}%`,
          },
          axisTick: { ...axisLook(c).axisTick, customValues: marks },
        },
        yAxis: {
          ...axisLook(c),
          ...scale,
          name: 'response time',
          nameTextStyle: { color: c.soft, align: 'left', padding: [0, 0, 0, -50] },
          axisTick: { ...axisLook(c).axisTick, customValues: scale.customValues },
          axisLabel: { ...axisLook(c).axisLabel, customValues: scale.customValues, formatter: round },
        },
        tooltip: {
          trigger: 'axis',
          ...tipLook(c),
          axisPointer: { type: 'line', lineStyle: { color: c.soft } },
          formatter: (hits: { axisValue: number }[]) => {
            const q = 1 - 1 / (hits[0]?.axisValue ?? 2);
            const rows = drawn.map(
              curve => [label(curve), micros(at(curve, q)), lookOf(curve).color] as [string, string, string],
            );
            return tip(`p${percent(q)}`, rows);
          },
        },
        series: [
          ...drawn.map(curve => ({
            type: 'line',
            name: label(curve),
            showSymbol: false,
            data: curve.points.filter(([q]) => q >= 0.5).map(([q, us]) => [x(q), us]),
            lineStyle: { ...lookOf(curve), width: baselines.has(curve.arm) ? 3.5 : 2 },
            itemStyle: { color: lookOf(curve).color },
          })),
          {
            type: 'custom',
            silent: true,
            data: width >= 560 ? [[x(rarest), drawn[0]?.points.at(-1)?.[1] ?? 1]] : [],
            renderItem: (params: Params, api: Api) => names(params, api, drawn, c),
          },
        ],
      };
    },
  });
  section.append(figure.element);
  return section;
}

interface Params {
  coordSys: { x: number; y: number; width: number; height: number };
}

interface Api {
  coord: (point: [number, number]) => [number, number];
}

/** Each curve's arm, beside its end. */
function names({ coordSys: g }: Params, api: Api, drawn: Curve[], c: Colours) {
  const ends = drawn.map(curve => {
    const [q, us] = curve.points.at(-1) ?? [LAST, 1];
    return api.coord([x(q), us]);
  });
  const places = spread(
    ends.map(([, y]) => y),
    13,
    g.y + 6,
    g.y + g.height - 6,
  );
  return {
    type: 'group',
    children: drawn.flatMap((curve, i) => {
      const [endX, endY] = ends[i] ?? [0, 0];
      const y = places[i] ?? endY;
      return [
        {
          type: 'line',
          shape: { x1: endX + 2, y1: endY, x2: g.x + g.width + 10, y2: y },
          style: { stroke: c.line },
        },
        {
          type: 'text',
          style: {
            text: curve.arm,
            x: g.x + g.width + 13,
            y,
            textVerticalAlign: 'middle',
            fill: c.text,
            fontSize: 12,
            width: 80,
            overflow: 'truncate',
          },
        },
      ];
    }),
  };
}

const round = (us: number) =>
  us >= 1e6 ? `${plain(us / 1e6)} s` : us >= 1e3 ? `${plain(us / 1e3)} ms` : `${plain(us)} µs`;

const x = (q: number) => 1 / (1 - q);

function percent(q: number): string {
  return String(Number((100 * q).toFixed(3)));
}

/** The curve's value at a quantile, along straight lines between its points. */
function at(curve: Curve, q: number): number | null {
  const after = curve.points.findIndex(([quantile]) => quantile >= q - 1e-9);
  const high = curve.points[after];
  if (!high) return null;
  const low = curve.points[after - 1];
  if (!low || Math.abs(high[0] - q) < 1e-9) return high[1];
  return low[1] + ((high[1] - low[1]) * (q - low[0])) / (high[0] - low[0]);
}

function atFirst(curves: Curve[], arms: string[], baselines: Set<string>): Set<string> {
  const p99 = (arm: string) => {
    const values = curves.filter(curve => curve.arm === arm).map(curve => at(curve, 0.99) ?? 0);
    return Math.max(...values);
  };
  const base = Math.max(...[...baselines].map(p99).filter(Number.isFinite), 1);
  const others = arms.filter(arm => !baselines.has(arm));
  others.sort((a, b) => Math.abs(Math.log(p99(b) / base)) - Math.abs(Math.log(p99(a) / base)));
  return new Set([...arms.filter(arm => baselines.has(arm)), ...others.slice(0, AT_FIRST)]);
}
