// Chart of the load: how many queries of each class are under way at once, on average, one above the other.

import uPlot from 'uplot';
import { localTime, num } from '../format';
import { colours, faded } from '../theme';
import type { LoadStep } from './ask';

const HEIGHT = 260;

export interface Load {
  /** Seconds since 1970. */
  times: number[];
  stepS: number;
  /** The most time first; the last may be all other classes. */
  series: { id: string; label: string; values: number[] }[];
}

/** Rows by class and step; steps without a query are 0. */
export function loadOf(steps: LoadStep[]): Load {
  const first = steps[0];
  const last = steps.at(-1);
  if (!first || !last) return { times: [], stepS: 0, series: [] };
  const stepUs = first.step_us;
  const count = Math.round((last.begin_us - first.begin_us) / stepUs) + 1;
  const series = new Map<string, Load['series'][number]>();
  for (const { class: id, summary, begin_us, active } of steps) {
    const label = id === '' ? 'all others' : summary;
    const one = series.get(id) ?? { id, label, values: new Array<number>(count).fill(0) };
    one.values[Math.round((begin_us - first.begin_us) / stepUs)] = active;
    series.set(id, one);
  }
  const sum = (one: Load['series'][number]) => one.values.reduce((a, b) => a + b, 0);
  const rank = (one: Load['series'][number]) => (one.id === '' ? -1 : sum(one));
  return {
    times: Array.from({ length: count }, (_, at) => (first.begin_us + at * stepUs) / 1e6),
    stepS: stepUs / 1e6,
    series: [...series.values()].sort((a, b) => rank(b) - rank(a)),
  };
}

/** A tick's text: its day at midnight, or where ticks are days. */
function moment(at: number, stepS: number): string {
  const [day, time] = localTime(at * 1000).split(' ') as [string, string];
  return stepS >= 86_400 || time === '00:00:00' ? day : time.slice(0, 5);
}

/** Draws it, and tells which stretch of time is chosen by dragging, in seconds since 1970. */
export function drawLoad(
  into: HTMLElement,
  load: Load,
  chosen: (since: number, until: number) => void,
): { destroy: () => void; resize: () => void } {
  const c = colours();
  // Each lies on all before it: the sums are drawn, the topmost first.
  const sums: number[][] = [];
  for (const { values } of load.series) {
    const below = sums.at(-1);
    sums.push(values.map((value, at) => value + (below?.[at] ?? 0)));
  }
  const drawn = load.series.map((one, at) => ({ one, sum: sums[at] ?? [], colour: colour(at) })).reverse();
  function colour(at: number): string {
    return load.series[at]?.id === '' ? c.soft : (c.series[at % c.series.length] ?? c.soft);
  }
  // A step lasts until the next one begins, the last as long as the others.
  const stepS = load.stepS;
  const times = [...load.times, (load.times.at(-1) ?? 0) + stepS];
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const axis = { stroke: c.soft, grid: { stroke: c.faint, width: 1 }, ticks: { stroke: c.line, width: 1 } };
  const plot = new uPlot(
    {
      width: into.clientWidth || 800,
      height: HEIGHT,
      scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
      axes: [
        { ...axis, values: (_, ticks, __, ___, stepS) => ticks.map(at => moment(at, stepS)) },
        { ...axis, size: 60, values: (_, ticks) => ticks.map(tick => num(tick)) },
      ],
      cursor: { drag: { x: true, y: false } },
      series: [
        { value: (_: uPlot, at: number | null) => (at === null ? '' : localTime(at * 1000)) },
        ...drawn.map(({ one, colour }) => ({
          label: one.label,
          stroke: colour,
          fill: faded(colour, 0.55),
          width: 1,
          ...(stepped ? { paths: stepped } : {}),
          points: { show: false },
          value: (_: uPlot, __: number | null, ___: number, at: number | null) =>
            at === null ? '' : num(one.values[Math.min(at, one.values.length - 1)]),
        })),
      ],
      bands: drawn.slice(1).map((_, at) => ({ series: [at + 1, at + 2] as [number, number] })),
      hooks: {
        setSelect: [
          plot => {
            const { left, width } = plot.select;
            if (width > 2) chosen(plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x'));
          },
        ],
      },
    },
    [times, ...drawn.map(({ sum }) => [...sum, sum.at(-1) ?? 0])],
    into,
  );
  const resize = () => plot.setSize({ width: into.clientWidth, height: HEIGHT });
  return { destroy: () => plot.destroy(), resize };
}
