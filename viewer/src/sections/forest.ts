// Forest plot of each variant's overhead by outcome, with interval and verdict.

import { axisLook, tip, tipLook } from '../chart';
import { analysed, armNames, definition, judgedBy, type Outcome, type Page } from '../data';
import { el } from '../dom';
import { Figure } from '../figure';
import { bytes, estimate, inUnit, outcomeTitle, plain, range, verdictText } from '../format';
import { ceilNice } from '../scale';
import { faded, type Colours } from '../theme';
import { fullTable, shortTable } from './forest-tables';

/** Room for what is said beside a row: at least, at most, and by letter. */
const VALUE_WIDTHS = [104, 170, 6.6] as const;

interface Row {
  arm: string;
  title: string;
  run: number;
  runName: string;
  outcome: Outcome;
  toll: number;
}

export interface Panel {
  name: string;
  title: string;
  /** Of its axis; `null`: percent. */
  unit: string | null;
  higherIsBetter: boolean;
  /** Inside ±margin an effect counts as none; 0: there is no such margin. */
  margin: number;
  /** Shown by itself: there is nothing that it is compared with. */
  byItself: boolean;
  rows: Row[];
  low: number;
  high: number;
  /** Drawn by the logarithm of the ratio: halved and doubled are as far from nothing. */
  byRatio: boolean;
}

/** Beyond this many percent, an axis in plain percent would press all small overheads into one line. */
const RATIO_FROM_PCT = 100;
const RATIO_TICKS = [-90, -50, -25, 0, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000];
/** From here on there is no room to name a quarter and a half. */
const COARSE_FROM_PCT = 400;

export function forestSection(page: Page): HTMLElement {
  const runs = analysed(page);
  const section = el('section', { id: 'tolls' }, el('h2', {}, 'Overhead against the baseline'));
  const names = armNames(page);
  // A run that was decided by an outcome that it does not ask to be drawn shows that first.
  const wanted = runs.flatMap(({ result }) => result.panels);
  const judged = runs.flatMap(({ result }) => result.arms.map(arm => judgedBy(result, arm)));
  const outcomes = [...new Set([...judged.filter(name => !wanted.includes(name)), ...wanted])];
  const panels = outcomes.map(name => panel(page, name)).filter(p => p.rows.length > 0);
  if (panels.length === 0) {
    section.append(
      el(
        'p',
        { class: 'empty' },
        'No overhead was measured: no variant has a window beside one of the baseline.',
      ),
    );
    return section;
  }
  const shown = names.filter(name => panels.some(p => p.rows.some(row => row.arm === name)));
  const lines = inGroups(page, shown);
  const lineOf = new Map(lines.map(({ arm }, at) => [arm, at]));
  const several = page.runs.length > 1;
  const rowHeight = several ? 10 + 13 * runs.length : 22;
  const margin = Math.max(...runs.map(({ result }) => result.margin_pct));
  const columns = (width: number) => (width >= 680 ? 2 : 1);
  const longest = Math.max(...panels.flatMap(p => p.rows.map(row => said(row.outcome).length)));
  const valueWidth = Math.min(Math.max(VALUE_WIDTHS[0], 16 + VALUE_WIDTHS[2] * longest), VALUE_WIDTHS[1]);
  const panelHeight = 64 + lines.length * rowHeight;
  const references = runs.flatMap(({ result }) => [
    result.baseline,
    ...result.arms.flatMap(arm => arm.against ?? []),
  ]);
  const baseline = [...new Set(references)].join(', ');

  const figure = new Figure({
    id: 'tolls',
    title: `Overhead of each variant against its baseline (${baseline})`,
    hint: `Points are overheads, bars their 95% confidence intervals. The grey band is the margin (±${plain(margin)}% of ratios): an interval inside it is equivalent to none. An arrow marks an interval that reaches beyond the picture.`,
    label: () => panels.map(p => `${p.title}: ${inWords(p)}`).join(' '),
    height: width => Math.ceil(panels.length / columns(width)) * panelHeight,
    table: () => fullTable(panels),
    shortTable: () => shortTable(panels, several),
    option: ({ colours: c, width }) => {
      const cols = columns(width);
      const left = Math.min(
        width < 560 ? 90 : width < 900 ? 130 : 180,
        26 + 7 * Math.max(...lines.map(line => line.text.length)),
      );
      const cell = width / cols;
      const grids = panels.map((_, i) => ({
        left: (i % cols) * cell + left,
        width: cell - left - valueWidth - (cols > 1 && i % cols === 0 ? 20 : 4),
        top: Math.floor(i / cols) * panelHeight + 26,
        height: lines.length * rowHeight,
      }));
      return {
        grid: grids,
        xAxis: panels.map((p, i) => ({ ...axis(p, c), type: 'value', gridIndex: i })),
        yAxis: panels.map((p, i) => ({
          ...axisLook(c),
          type: 'category',
          gridIndex: i,
          inverse: true,
          data: lines.map(({ arm, text }) =>
            arm === null ? { value: text, textStyle: { fontWeight: 600 } } : text,
          ),
          name: `${p.title}${p.unit === null ? '' : `, ${p.unit}`}${p.higherIsBetter ? ', left is worse' : ', right is worse'}${p.byRatio ? ', log scale' : ''}`,
          nameLocation: 'start',
          nameGap: 10,
          nameTextStyle: { color: c.text, fontWeight: 600, align: 'left', padding: [0, 0, 0, 8 - left] },
          axisLine: { onZero: false, lineStyle: { color: c.line } },
          axisTick: { show: false },
          axisLabel: {
            color: c.text,
            interval: 0,
            width: left - 14,
            overflow: 'truncate',
            hideOverlap: false,
          },
          splitLine: { show: true, lineStyle: { color: c.faint } },
        })),
        tooltip: {
          trigger: 'item',
          ...tipLook(c),
          formatter: (hit: { seriesIndex: number; dataIndex: number }) => {
            const row = panels[Math.floor(hit.seriesIndex / 2)]?.rows[hit.dataIndex];
            if (!row) return '';
            const o = row.outcome;
            return tip(`${row.arm}: ${row.title}`, [
              ...(several ? ([['run', row.runName]] as [string, string][]) : []),
              ['overhead', `${estimate(o, o.unit, o.verdict)} (${range(o, o.unit, o.verdict)})`],
              ['mean', inUnit(o.mean, o.unit)],
              ['windows', String(o.values.length)],
              ['', verdictText(o.verdict)],
            ]);
          },
        },
        series: panels.flatMap((p, i) => [
          {
            type: 'custom',
            xAxisIndex: i,
            yAxisIndex: i,
            silent: true,
            z: 0,
            data: [[0, 0]],
            renderItem: (params: Params, api: Api) => band(params, api, c, p),
          },
          {
            type: 'custom',
            xAxisIndex: i,
            yAxisIndex: i,
            z: 2,
            data: p.rows.map(row => [place(p, row.toll), lineOf.get(row.arm) ?? 0]),
            renderItem: (params: Params, api: Api) => {
              const row = p.rows[params.dataIndex];
              return row ? mark(params, api, c, p, row, several, runs.length, valueWidth) : null;
            },
          },
        ]),
      };
    },
  });
  section.append(figure.element, legend(page, several));
  return section;
}

/** A line of the plot: an arm, or the name of the group whose arms come below it. */
interface Line {
  arm: string | null;
  text: string;
}

/** Arms that a scenario made by varying something stand together by the first thing that it varied. */
function inGroups(page: Page, arms: string[]): Line[] {
  const groups = new Map<string, string[]>();
  for (const arm of arms) {
    const group = groupOf(page, arm);
    groups.set(group, [...(groups.get(group) ?? []), arm]);
  }
  const line = (arm: string): Line => ({ arm, text: arm });
  const named = [...groups].filter(([group]) => group !== '');
  if (named.length < 2 || named.every(([, members]) => members.length < 2)) return arms.map(line);
  return [
    ...(groups.get('') ?? []).map(line),
    ...named.flatMap(([text, members]) => [{ arm: null, text }, ...members.map(line)]),
  ];
}

/** Empty: the arm was written by itself. */
function groupOf(page: Page, arm: string): string {
  for (const { plan } of page.runs) {
    const first = plan?.arms.find(planned => planned.name === arm)?.varied?.[0];
    if (first) return first.join(' ');
  }
  return '';
}

function panel(page: Page, name: string): Panel {
  const defined = definition(page, name);
  const inPercent = defined?.compare === undefined || defined.compare === 'log-ratio';
  const rows: Row[] = analysed(page).flatMap(({ run, result, index }) =>
    result.arms.flatMap(arm => {
      const outcome = arm.outcomes[name];
      const toll = inPercent ? outcome?.toll_pct : outcome?.effect;
      if (!outcome || toll === null || toll === undefined) return [];
      const other = arm.against !== undefined && arm.against !== result.baseline;
      const title = other ? `${arm.title}, against ${arm.against}` : arm.title;
      return [{ arm: arm.name, title, run: index, runName: run.name, outcome, toll }];
    }),
  );
  const ofRatios = Math.max(0, ...analysed(page).map(({ result }) => result.margin_pct));
  const margin = inPercent ? ofRatios : (defined?.margin ?? 0);
  const ends = rows.flatMap(row => [row.toll, ...(ci(row.outcome) ?? [])]);
  const negated = ends.map(end => -end);
  const byRatio = inPercent && Math.max(...ends) > RATIO_FROM_PCT;
  const reach = inPercent ? limit : limitInUnit;
  const byItself = rows.every(row => row.outcome.verdict === 'not-compared');
  return {
    name,
    title: outcomeTitle(defined, name),
    unit: inPercent ? null : (defined?.unit ?? ''),
    higherIsBetter: defined?.higher_is_better ?? rows[0]?.outcome.higher_is_better ?? false,
    margin,
    byItself,
    rows,
    low: byRatio
      ? Math.max(Math.min(...ends, -20), -95)
      : byItself && ends.every(end => end >= 0)
        ? 0
        : -reach(negated, margin),
    high: byRatio ? Math.max(...ends) * 1.1 : reach(ends, margin),
    byRatio,
  };
}

/** An outcome's interval, in percent or in its unit. */
const ci = (o: Outcome) => o.ci95_pct ?? o.ci95 ?? null;

/** Where a toll stands on the panel's axis. */
function place(p: Panel, pct: number): number {
  return p.byRatio ? Math.log1p(Math.max(pct, -99.9) / 100) : pct;
}

function axis(p: Panel, c: Colours) {
  const look = axisLook(c);
  const sign = (v: number) => (v > 0 && !p.byItself ? '+' : '');
  const text = (v: number) => {
    if (p.unit === null) return `${sign(v)}${Math.round(v).toLocaleString('en')}%`;
    return `${sign(v)}${p.unit.startsWith('bytes') ? bytes(v) : plain(v)}`;
  };
  if (!p.byRatio) {
    return {
      ...look,
      min: p.low,
      max: p.high,
      splitNumber: 4,
      axisLabel: { ...look.axisLabel, formatter: text },
    };
  }
  const ticks = RATIO_TICKS.filter(
    pct => pct >= p.low && pct <= p.high && (p.high < COARSE_FROM_PCT || pct === 0 || Math.abs(pct) >= 90),
  ).map(pct => place(p, pct));
  return {
    ...look,
    min: place(p, p.low),
    max: place(p, p.high),
    splitLine: { show: false },
    axisTick: { ...look.axisTick, customValues: ticks },
    axisLabel: {
      ...look.axisLabel,
      customValues: ticks,
      formatter: (v: number) => text(100 * Math.expm1(v)),
    },
  };
}

/** As far as the picture reaches: one wild arm must not flatten all others. */
function limit(ends: number[], margin: number): number {
  const rising = ends.filter(v => v > 0).sort((a, b) => a - b);
  const highest = rising.at(-1) ?? 0;
  const usual = rising[Math.floor(rising.length * 0.75)] ?? 0;
  const reach = Math.max(2 * margin, Math.min(highest * 1.05, usual * 3));
  const step = reach > 200 ? 100 : reach > 60 ? 20 : reach > 20 ? 10 : 5;
  return Math.ceil(reach / step) * step;
}

/** The same in a unit of which nothing is known; a side on which there is nothing is narrow. */
function limitInUnit(ends: number[], margin: number): number {
  const rising = ends.filter(v => v > 0).sort((a, b) => a - b);
  const highest = rising.at(-1) ?? 0;
  const usual = rising[Math.floor(rising.length * 0.75)] ?? 0;
  const furthest = Math.max(...ends.map(Math.abs), 0);
  const reach = Math.max(2 * margin, Math.min(highest * 1.05, usual * 3), furthest / 20);
  return reach > 0 ? ceilNice(reach) : 1;
}

interface Params {
  dataIndex: number;
  coordSys: { x: number; y: number; width: number; height: number };
}

interface Api {
  value: (at: number) => number;
  coord: (point: [number, number]) => [number, number];
}

function band({ coordSys: g }: Params, api: Api, c: Colours, p: Panel) {
  const [low] = api.coord([place(p, -p.margin), 0]);
  const [zero] = api.coord([0, 0]);
  const [high] = api.coord([place(p, p.margin), 0]);
  return {
    type: 'group',
    children: [
      {
        type: 'rect',
        shape: { x: low, y: g.y, width: high - low, height: g.height },
        style: { fill: c.faint },
      },
      {
        type: 'line',
        shape: { x1: zero, y1: g.y, x2: zero, y2: g.y + g.height },
        style: { stroke: c.soft, lineWidth: 1 },
      },
    ],
  };
}

const WORDS: Record<string, string> = {
  costly: 'worse',
  cheaper: 'better',
  'no-effect': 'equivalent',
  unclear: 'inconclusive',
  'no-interval': '',
  'not-compared': '',
};

/** What stands beside a row. */
const said = (o: Outcome) => `${estimate(o, o.unit, o.verdict)} ${WORDS[o.verdict] ?? ''}`;

function mark(
  params: Params,
  api: Api,
  c: Colours,
  p: Panel,
  row: Row,
  several: boolean,
  runs: number,
  valueWidth: number,
) {
  const g = params.coordSys;
  const o = row.outcome;
  const [, middle] = api.coord([0, api.value(1)]);
  const y = middle + (several ? (row.run - (runs - 1) / 2) * 13 : 0);
  const inside = (v: number) => api.coord([place(p, Math.min(Math.max(v, p.low), p.high)), 0])[0];
  const colour = several
    ? (c.series[row.run % c.series.length] as string)
    : o.verdict === 'costly'
      ? c.costly
      : o.verdict === 'cheaper'
        ? c.cheaper
        : c.neutral;
  const sure = o.verdict === 'costly' || o.verdict === 'cheaper' || o.verdict === 'no-effect';
  const children: object[] = [];
  const interval = ci(o);
  if (interval) {
    const [low, high] = interval;
    children.push({
      type: 'line',
      shape: { x1: inside(low), y1: y, x2: inside(high), y2: y },
      style: { stroke: faded(colour, 0.75), lineWidth: 2.5 },
    });
  }
  const furthest = [row.toll, ...(interval ?? [])];
  if (furthest.some(v => v > p.high)) children.push(arrow(g.x + g.width, y, 1, colour));
  if (furthest.some(v => v < p.low)) children.push(arrow(g.x, y, -1, colour));
  if (row.toll >= p.low && row.toll <= p.high) {
    const x = inside(row.toll);
    const style = { fill: sure ? colour : c.ground, stroke: colour, lineWidth: 2 };
    children.push(
      o.verdict === 'costly' || o.verdict === 'cheaper'
        ? { type: 'polygon', shape: { points: diamond(x, y, 5.5) }, style }
        : { type: 'circle', shape: { cx: x, cy: y, r: 4.2 }, style },
    );
  }
  children.push({
    type: 'text',
    style: {
      x: g.x + g.width + 9,
      y,
      text: said(o),
      width: valueWidth - 10,
      overflow: 'truncate',
      textVerticalAlign: 'middle',
      fill: several ? colour : o.verdict === 'costly' ? c.costly : c.text,
      fontSize: 11,
      fontWeight: o.verdict === 'costly' ? 600 : 400,
    },
  });
  return { type: 'group', children };
}

const diamond = (x: number, y: number, r: number) => [
  [x - r, y],
  [x, y - r],
  [x + r, y],
  [x, y + r],
];

function arrow(x: number, y: number, way: 1 | -1, fill: string) {
  const points = [
    [x - way * 7, y - 4],
    [x, y],
    [x - way * 7, y + 4],
  ];
  return { type: 'polygon', shape: { points }, style: { fill } };
}

function inWords(p: Panel): string {
  return `${p.rows.map(row => `${row.arm} ${estimate(row.outcome, row.outcome.unit, row.outcome.verdict)}, ${verdictText(row.outcome.verdict)}`).join('; ')}.`;
}

function legend(page: Page, several: boolean): HTMLElement {
  const key = (className: string, text: string) =>
    el('li', {}, el('span', { class: `key ${className}`, 'aria-hidden': 'true' }), text);
  const shapes = [
    key(several ? 'neutral diamond' : 'costly diamond', several ? 'worse, or better' : 'worse'),
    several ? null : key('cheaper diamond', 'better'),
    key('neutral', 'equivalent'),
    key('neutral hollow', 'inconclusive, or too few rounds for an interval'),
  ];
  const runs = page.runs.map((run, i) => key(`s${(i % 7) + 1}`, run.name));
  return el('ul', { class: 'legend' }, ...(several ? runs : []), ...shapes);
}
