// Panel of a timeline, with the variants' windows and the stalls.

import { axisLook, slider, tip, tipLook } from '../chart';
import type { Panel, Span } from '../data';
import { choices, type Table } from '../dom';
import { Figure } from '../figure';
import { clock, num } from '../format';
import { logAxis } from '../scale';
import { faded, look, type Colours } from '../theme';
import type { View } from '../view';

/** Rows in the table behind a panel; the copy as CSV has all points. */
const TABLE_ROWS = 200;

export function panelFigure(view: View, panel: Panel, prefix: string, at: number): Figure {
  const shown = panel.series.map((series, i) => (panel.one_at_a_time ? i === 0 : !series.hidden));
  const points = panel.series.map(() => null as [number, number | null][] | null);
  const pointsOf = (i: number) => (points[i] ??= decode(view, panel, i));
  const leads = at === 0;
  const labelled = at < 2;
  const buttons = choices(
    'Series',
    panel.series.map((series, i) => ({ label: series.name, on: shown[i] ?? false, colour: i })),
    panel.one_at_a_time,
    on => {
      on.forEach((is, i) => (shown[i] = is));
      figure.draw();
    },
  );
  const visible = () => panel.series.flatMap((_, i) => (shown[i] ? [i] : []));
  const figure: Figure = new Figure({
    id: `${prefix}${panel.id}`,
    title: `${panel.title}, ${panel.unit}`,
    label: () =>
      `Line chart over time from ${clock(view.from)} to ${clock(view.to)}: ${visible()
        .map(i => `${panel.series[i]?.name} ${range(pointsOf(i), panel.unit)}`)
        .join('; ')}.`,
    height: width => (labelled ? (width < 560 ? 240 : 270) : 190) + (leads ? 44 : 0),
    controls: panel.series.length > 1 ? [buttons] : [],
    keys: {
      help: 'Keys: plus and minus zoom, arrows move, zero shows the whole run.',
      pressed: key => view.pressed(key),
    },
    made: chart => view.join(chart),
    table: () => table(view, panel, 0, Infinity, Infinity, pointsOf),
    shortTable: () => table(view, panel, view.from, view.to, TABLE_ROWS, pointsOf),
    option: ({ colours: c }) => {
      const scale = panel.log ? logAxis(values(visible().map(pointsOf))) : null;
      const ticks = scale?.customValues ? { customValues: scale.customValues } : {};
      return {
        grid: { left: 58, right: 14, top: labelled ? 24 : 12, bottom: leads ? 70 : 26 },
        xAxis: {
          ...axisLook(c),
          // Counted from the epoch, in UTC: ticks then fall on whole seconds, minutes and hours of the run.
          type: 'time',
          min: 0,
          max: view.end,
          axisLabel: {
            ...axisLook(c).axisLabel,
            formatter: (ms: number) => clock(ms),
            showMaxLabel: false,
            hideOverlap: true,
          },
          splitLine: { show: false },
        },
        yAxis: {
          ...axisLook(c),
          ...(scale ?? { type: 'value' }),
          splitNumber: labelled ? 5 : 3,
          axisLabel: { ...axisLook(c).axisLabel, ...ticks, formatter: short },
          axisTick: { ...axisLook(c).axisTick, ...ticks },
        },
        dataZoom: [
          {
            type: 'inside',
            filterMode: 'weakFilter',
            startValue: view.from,
            endValue: view.to,
            minValueSpan: 1_000,
            zoomOnMouseWheel: 'ctrl',
            moveOnMouseMove: true,
            moveOnMouseWheel: false,
          },
          ...(leads
            ? [
                {
                  ...slider(c),
                  filterMode: 'weakFilter',
                  startValue: view.from,
                  endValue: view.to,
                  minValueSpan: 1_000,
                  labelFormatter: (ms: number) => clock(ms),
                },
              ]
            : []),
        ],
        tooltip: {
          trigger: 'axis',
          ...tipLook(c),
          axisPointer: { type: 'line', lineStyle: { color: c.soft }, label: { show: false } },
          formatter: (hits: { seriesIndex: number; value: [number, number | null] }[]) => {
            const lines = hits.filter(hit => hit.seriesIndex >= 2);
            const ms = lines[0]?.value[0];
            if (ms === undefined) return '';
            const span = view.at(ms);
            const rows = lines.map(hit => {
              const i = visible()[hit.seriesIndex - 2] ?? 0;
              const value = hit.value[1];
              const text =
                value === null || Number.isNaN(value) ? 'nothing completed' : `${num(value)} ${unit(panel)}`;
              return [panel.series[i]?.name ?? '', text, look(c, i).color] as [string, string, string];
            });
            return tip(`${clock(ms, true)}${span ? `  ${span.arm}, round ${span.round + 1}` : ''}`, rows);
          },
        },
        series: [
          {
            type: 'custom',
            silent: true,
            z: 0,
            encode: { x: [0, 1], y: [] },
            data: stretches(view),
            renderItem: (params: Params, api: Api) => stretch(view, params, api, c, labelled),
          },
          {
            type: 'custom',
            silent: true,
            z: 1,
            encode: { x: [0, 1], y: [] },
            data: view.stalls.map(({ from, to }) => [from, to]),
            renderItem: (params: Params, api: Api) => stallMark(params, api, c, labelled),
          },
          ...visible().map(i => ({
            type: 'line',
            name: panel.series[i]?.name ?? '',
            data: pointsOf(i),
            showSymbol: false,
            sampling: 'minmax',
            connectNulls: false,
            z: 2,
            lineStyle: { ...look(c, i), width: 1.3 },
            itemStyle: { color: look(c, i).color },
            emphasis: { disabled: true },
          })),
        ],
      };
    },
  });
  return figure;
}

function* values(series: [number, number | null][][]): Iterable<number> {
  for (const points of series) for (const [, v] of points) if (v !== null) yield v;
}

const unit = (panel: Panel) => (panel.unit.startsWith('%') ? '%' : panel.one_at_a_time ? '' : panel.unit);

function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return String(Number(value.toPrecision(3)));
}

function decode(view: View, panel: Panel, i: number): [number, number | null][] {
  const series = panel.series[i];
  const steps = series ? view.run.timeline.times[series.t] : undefined;
  if (!series || !steps) return [];
  let ms = 0;
  return series.v.map((v, at) => {
    ms += steps[at] ?? 0;
    // A logarithm has no place for zero.
    return [ms, v === null || (panel.log && v <= 0) ? null : v * series.scale];
  });
}

function range(points: [number, number | null][], unit: string): string {
  let [low, high] = [Infinity, -Infinity];
  for (const [, v] of points) {
    if (v === null) continue;
    low = Math.min(low, v);
    high = Math.max(high, v);
  }
  return low > high ? 'without a value' : `from ${num(low)} to ${num(high)} ${unit}`;
}

interface Params {
  dataIndex: number;
  coordSys: { x: number; y: number; width: number; height: number };
}

interface Api {
  value: (at: number) => number;
  coord: (point: [number, number]) => [number, number];
}

function drawn(view: View): Span[] {
  return view.run.timeline.spans.filter(span =>
    view.emphasised === null ? span.arm !== view.baseline : span.arm === view.emphasised,
  );
}

function stretches(view: View): [number, number][] {
  return drawn(view).map(span => [span.start_ms, span.stop_ms ?? view.end]);
}

/** A place on the x axis, inside the plot. */
function place(params: Params, api: Api, ms: number): number {
  const g = params.coordSys;
  return Math.min(Math.max(api.coord([ms, 1])[0], g.x), g.x + g.width);
}

function stretch(view: View, params: Params, api: Api, c: Colours, labelled: boolean) {
  const span = drawn(view)[params.dataIndex];
  if (!span) return null;
  const g = params.coordSys;
  const colour = look(c, Math.max(view.arms.indexOf(span.arm), 0)).color;
  const strong = view.emphasised !== null ? 0.28 : labelled ? 0.14 : 0.09;
  const rect = (from: number, to: number, alpha: number) => ({
    type: 'rect',
    shape: { x: from, y: g.y, width: Math.max(to - from, 0), height: g.height },
    style: { fill: faded(colour, alpha) },
  });
  const x = (ms: number | null) => place(params, api, ms ?? view.end);
  const [start, stop] = [x(span.start_ms), x(span.stop_ms)];
  const children: object[] = [rect(start, stop, strong / 2.6)];
  if (span.window_begin_ms !== null)
    children.push(rect(x(span.window_begin_ms), x(span.window_end_ms), strong));
  const text = span.failed ? `${span.arm} failed` : span.arm;
  const room = stop - start;
  // A name that is cut off is another arm's name.
  if (labelled && room > 2 + 7 * text.length) {
    children.push({
      type: 'text',
      style: {
        text,
        x: (start + stop) / 2,
        y: g.y - 6,
        textAlign: 'center',
        textVerticalAlign: 'bottom',
        fill: c.text,
        fontSize: 11,
      },
    });
  }
  return { type: 'group', children };
}

function stallMark(params: Params, api: Api, c: Colours, labelled: boolean) {
  const g = params.coordSys;
  const [from, to] = [place(params, api, api.value(0)), place(params, api, api.value(1))];
  const width = Math.max(to - from, 1.5);
  const middle = from + width / 2;
  const bar = {
    type: 'rect',
    shape: { x: from, y: g.y, width, height: g.height },
    style: { fill: faded(c.stall, 0.35) },
  };
  const triangle = {
    type: 'polygon',
    shape: {
      points: [
        [middle - 4, g.y],
        [middle + 4, g.y],
        [middle, g.y + 7],
      ],
    },
    style: { fill: c.stall },
  };
  return { type: 'group', children: labelled ? [bar, triangle] : [bar] };
}

function table(
  view: View,
  panel: Panel,
  from: number,
  to: number,
  most: number,
  pointsOf: (i: number) => [number, number | null][],
): Table {
  const each = Math.max(1, Math.floor(most / panel.series.length));
  const rows = panel.series.flatMap((series, i) => {
    const inside = pointsOf(i).filter(([ms]) => ms >= from && ms <= to);
    const step = Math.max(1, Math.ceil(inside.length / each));
    return inside
      .filter((_, at) => at % step === 0)
      .map(([ms, v]) => [
        series.name,
        view.at(ms)?.arm ?? '',
        Number((ms / 1000).toFixed(3)),
        v === null ? null : Number(v.toPrecision(6)),
      ]);
  });
  return { head: ['series', 'variant', 'time s', panel.unit], rows, words: [0, 1] };
}
