// Trade-off section: captured share and cost of each variant.

import { axisLook, tip, tipLook } from '../chart';
import {
  analysed,
  definition,
  judgedBy,
  type Arm,
  type Interval,
  type Outcome,
  type Page,
  type Result,
} from '../data';
import { el, type Table } from '../dom';
import { Figure } from '../figure';
import { interval, outcomeTitle, share, signedPct, verdictText } from '../format';
import { spread } from '../scale';
import { faded, type Colours } from '../theme';

interface Point {
  run: number;
  runName: string;
  arm: Arm;
  caught: number;
  low: number;
  high: number;
  toll: number;
  ci: Interval | null;
  verdict: string;
}

/** What an arm costs, by the outcome that it is judged by, where that is compared as a ratio. */
function cost(result: Result, arm: Arm): { name: string; outcome: Outcome; toll: number } | null {
  const name = judgedBy(result, arm);
  const outcome = arm.outcomes[name];
  const toll = outcome?.toll_pct;
  return outcome && toll !== null && toll !== undefined ? { name, outcome, toll } : null;
}

export function tradeoffSection(page: Page): HTMLElement {
  const points: Point[] = [];
  const apart: string[] = [];
  let outcomeName = '';
  for (const { run, result, index } of analysed(page)) {
    for (const arm of result.arms) {
      const priced = cost(result, arm);
      if (arm.captured_ratio === null || priced === null) {
        if (arm.role === 'treatment') {
          const why = arm.artefact?.encrypted ? ' (encrypted)' : '';
          apart.push(`${arm.name}${page.runs.length > 1 ? ` (${run.name})` : ''}${why}`);
        }
        continue;
      }
      outcomeName = priced.name;
      const seen = run.captured[arm.name];
      points.push({
        run: index,
        runName: run.name,
        arm,
        caught: 100 * arm.captured_ratio,
        low: 100 * (seen?.low ?? arm.captured_ratio),
        high: 100 * (seen?.high ?? arm.captured_ratio),
        toll: priced.toll,
        ci: priced.outcome.ci95_pct,
        verdict: priced.outcome.verdict,
      });
    }
  }
  const section = el('section', { id: 'tradeoff' }, el('h2', {}, 'Cost against catch'));
  if (points.length === 0) {
    section.append(
      el(
        'p',
        { class: 'empty' },
        'No variant of this page has both an overhead and a count of the queries that it captured.',
      ),
    );
    return section;
  }
  const costTitle = outcomeTitle(definition(page, outcomeName), outcomeName);
  const several = page.runs.length > 1;
  const table = (): Table => ({
    head: [
      'variant',
      'description',
      'run',
      'captured %',
      'least %',
      'most %',
      'overhead %',
      'overhead low %',
      'overhead high %',
      'verdict',
    ],
    rows: points.map(p => [
      p.arm.name,
      p.arm.title,
      p.runName,
      p.caught,
      p.low,
      p.high,
      p.toll,
      p.ci?.[0] ?? null,
      p.ci?.[1] ?? null,
      p.verdict,
    ]),
    words: [0, 1, 2, 9],
  });
  const shortTable = (): Table => ({
    head: [
      'variant',
      'description',
      ...(several ? ['run'] : []),
      'queries captured',
      `${costTitle}: overhead`,
      '95% interval',
      'verdict',
    ],
    rows: points.map(p => [
      p.arm.name,
      p.arm.title,
      ...(several ? [p.runName] : []),
      share(p.caught / 100),
      signedPct(p.toll),
      interval(p.ci),
      verdictText(p.verdict),
    ]),
    words: several ? [0, 1, 2, 6] : [0, 1, 5],
  });
  const figure = new Figure({
    id: 'tradeoff',
    title: `${costTitle}: overhead against share of queries captured`,
    hint: 'Best is bottom right: all queries, no overhead. Vertical bars are 95% confidence intervals; horizontal bars reach from the window that captured least to the one that captured most.',
    label: () => `Scatter chart of ${points.length} arms. ${extremes(points)}`,
    height: width => (width < 560 ? 380 : 440),
    table,
    shortTable,
    option: ({ colours: c, width }) => {
      const highest = Math.max(...points.map(p => p.ci?.[1] ?? p.toll), 5);
      const lowest = Math.min(...points.map(p => p.ci?.[0] ?? p.toll), 0);
      const data = points.map((p, at) => ({
        value: [p.caught, p.toll, p.low, p.high, p.ci?.[0], p.ci?.[1], at],
      }));
      return {
        grid: { left: 60, right: width < 560 ? 24 : 40, top: 36, bottom: 48 },
        xAxis: {
          ...axisLook(c),
          type: 'value',
          name: 'queries captured, % of those executed',
          nameLocation: 'middle',
          nameGap: 30,
          min: 0,
          max: (extent: { max: number }) => (extent.max > 101 ? Math.ceil(extent.max / 10) * 10 : 105),
          axisLabel: {
            ...axisLook(c).axisLabel,
            formatter: (v: number) => (v > 100 && v < 110 ? '' : `${v}%`),
          },
        },
        yAxis: {
          ...axisLook(c),
          type: 'value',
          name: width < 560 ? 'overhead' : `${costTitle}: overhead`,
          nameTextStyle: { color: c.soft, align: 'left', padding: [0, 0, 0, -50] },
          min: lowest < 0 ? Math.floor(lowest / 5) * 5 : 0,
          max: Math.ceil((highest * 1.05) / 5) * 5,
          axisLabel: { ...axisLook(c).axisLabel, formatter: (v: number) => `${v > 0 ? '+' : ''}${v}%` },
        },
        tooltip: {
          trigger: 'item',
          ...tipLook(c),
          formatter: (hit: { value: number[] }) => {
            const p = points[hit.value[6] ?? 0];
            if (!p) return '';
            return tip(`${p.arm.name}: ${p.arm.title}`, [
              ...(several ? ([['run', p.runName]] as [string, string][]) : []),
              ['captured', share(p.caught / 100)],
              ['overhead', `${signedPct(p.toll)} (${interval(p.ci)})`],
              ['', verdictText(p.verdict)],
            ]);
          },
        },
        series: [
          {
            type: 'custom',
            silent: true,
            data,
            z: 1,
            renderItem: (_: unknown, api: CustomApi) => cross(api, shade(c, points[api.value(6)], several)),
          },
          {
            type: 'custom',
            silent: true,
            z: 4,
            data: data.slice(0, 1),
            renderItem: (params: CustomParams, api: CustomApi) => names(params, api, points, c),
          },
          {
            type: 'scatter',
            symbolSize: 11,
            z: 3,
            data: data.map((d, at) => ({
              ...d,
              symbol: several ? (SYMBOLS[(points[at]?.run ?? 0) % SYMBOLS.length] as string) : 'circle',
              itemStyle: { color: shade(c, points[at], several), borderColor: c.ground, borderWidth: 1 },
            })),
          },
        ],
      };
    },
  });
  section.append(figure.element, legend(page, several));
  if (apart.length > 0) {
    section.append(
      el(
        'p',
        { class: 'hint' },
        `Not in the picture, for want of a count or of a window: ${apart.join(', ')}.`,
      ),
    );
  }
  return section;
}

const SYMBOLS = ['circle', 'diamond', 'triangle', 'rect', 'pin'];

interface CustomApi {
  value: (at: number) => number;
  coord: (point: number[]) => [number, number];
}

function shade(c: Colours, point: Point | undefined, several: boolean): string {
  if (!point) return c.soft;
  if (several) return c.series[point.run % c.series.length] as string;
  return point.verdict === 'costly' ? c.costly : point.verdict === 'cheaper' ? c.cheaper : c.neutral;
}

interface CustomParams {
  coordSys: { x: number; y: number; width: number; height: number };
}

/** Arm names beside their points: to the left, or to the right where a point stands near the axis. Points
 *  that stand together share a column of names, none upon another. */
function names({ coordSys: g }: CustomParams, api: CustomApi, points: Point[], c: Colours) {
  // The longest names fit where there is room, so that no two look alike.
  const nameWidth = g.width < 560 ? 100 : 170;
  const places = points.map(p => ({ name: p.arm.name, at: api.coord([p.caught, p.toll]) }));
  places.sort((a, b) => a.at[0] - b.at[0]);
  const columns: (typeof places)[] = [];
  for (const place of places) {
    const last = columns.at(-1);
    const beside = last?.at(-1);
    if (last && beside && place.at[0] - beside.at[0] < 70) last.push(place);
    else columns.push([place]);
  }
  const children = columns.flatMap(column => {
    const xs = column.map(place => place.at[0]);
    const left = Math.min(...xs) - g.x > nameWidth + 10;
    const edge = left ? Math.min(...xs) - 22 : Math.max(...xs) + 22;
    const ys = spread(
      column.map(place => place.at[1]),
      14,
      g.y + 8,
      g.y + g.height - 8,
    );
    return column.flatMap(({ name, at: [x, y] }, i) => [
      {
        type: 'line',
        shape: { x1: x, y1: y, x2: edge + (left ? 2 : -2), y2: ys[i] ?? y },
        style: { stroke: c.soft, lineWidth: 0.75, opacity: 0.7 },
      },
      {
        type: 'text',
        style: {
          text: name,
          x: edge,
          y: ys[i] ?? y,
          textAlign: left ? 'right' : 'left',
          textVerticalAlign: 'middle',
          fill: c.text,
          fontSize: 12,
          fontWeight: 600,
          width: nameWidth,
          overflow: 'truncate',
          stroke: c.ground,
          lineWidth: 3,
        },
      },
    ]);
  });
  return { type: 'group', children };
}

function cross(api: CustomApi, colour: string) {
  const [x, y] = [api.value(0), api.value(1)];
  const line = (from: [number, number], to: [number, number]) => ({
    type: 'line',
    shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] },
    style: { stroke: faded(colour, 0.55), lineWidth: 2 },
  });
  const children = [line(api.coord([api.value(2), y]), api.coord([api.value(3), y]))];
  const [low, high] = [api.value(4), api.value(5)];
  if (Number.isFinite(low) && Number.isFinite(high)) {
    children.push(line(api.coord([x, low]), api.coord([x, high])));
  }
  return { type: 'group', children };
}

function legend(page: Page, several: boolean): HTMLElement {
  const key = (className: string, text: string) =>
    el('li', {}, el('span', { class: `key ${className}`, 'aria-hidden': 'true' }), text);
  if (several) {
    return el('ul', { class: 'legend' }, ...page.runs.map((run, i) => key(`s${(i % 7) + 1}`, run.name)));
  }
  return el(
    'ul',
    { class: 'legend' },
    key('costly', 'worse'),
    key('cheaper', 'better'),
    key('neutral', 'equivalent, inconclusive, or too few rounds'),
  );
}

function extremes(points: Point[]): string {
  const by = (f: (p: Point) => number) => [...points].sort((a, b) => f(a) - f(b));
  const [cheapest] = by(p => p.toll);
  const dearest = by(p => p.toll).at(-1);
  const fullest = by(p => p.caught).at(-1);
  const say = (p: Point | undefined) =>
    p ? `${p.arm.name} (${signedPct(p.toll)}, ${share(p.caught / 100)} captured)` : '';
  return `Lowest overhead: ${say(cheapest)}. Highest: ${say(dearest)}. Most captured: ${say(fullest)}.`;
}
