// Drawing of charts from their self-contained data.
//
// Supports six kinds of chart. Knows no scenario.

import { axisLook, slider, tip, tipLook } from './chart';
import type { Axis, Chart } from './data';
import { choices, el, slug, tableElement, type Table } from './dom';
import { Figure } from './figure';
import { num, plain } from './format';
import { logAxis } from './scale';
import { stackedHeight, stackedOption } from './stacked';
import { faded, look, type Colours } from './theme';

type Series = Chart['series'][number];

/** Names of figures that are on the page. */
const taken = new Set<string>();

/** A figure with its tools, or a table where the data say so. */
export function chartElement(chart: Chart): HTMLElement {
  let id = `figure-${slug(chart.id)}`;
  while (taken.has(id)) id += '-2';
  taken.add(id);
  return chart.kind === 'table' ? tableOnly(chart, id) : drawn(chart, id);
}

const axisTitle = (axis: Axis) => (axis.unit ? `${axis.label}, ${axis.unit}` : axis.label);

function category(axis: Axis, at: number): string {
  return axis.categories[at] ?? String(at);
}

function tableOf(chart: Chart): Table {
  const named = chart.x.categories.length > 0;
  const interval = chart.series.some(s => s.points.some(p => p[2] !== null));
  return {
    head: ['series', axisTitle(chart.x), axisTitle(chart.y), ...(interval ? ['low', 'high'] : [])],
    rows: chart.series.flatMap(s =>
      s.points.map(([x, y, low, high]) => [
        s.name,
        named ? category(chart.x, x) : x,
        y,
        ...(interval ? [low, high] : []),
      ]),
    ),
    words: named ? [0, 1] : [0],
  };
}

/** A row for each category, a column for each series. */
function tableOnly(chart: Chart, id: string): HTMLElement {
  const rows = Math.max(
    chart.x.categories.length,
    ...chart.series.flatMap(s => s.points.map(p => p[0] + 1)),
    0,
  );
  const table: Table = {
    head: [
      axisTitle(chart.x),
      ...chart.series.map(s => (chart.y.unit ? `${s.name}, ${chart.y.unit}` : s.name)),
    ],
    rows: Array.from({ length: rows }, (_, at) => [
      category(chart.x, at),
      ...chart.series.map(s => {
        const found = s.points.find(p => p[0] === at);
        if (!found) return null;
        const [, y, low, high] = found;
        return low !== null && high !== null ? `${num(y)} (${num(low)} to ${num(high)})` : num(y);
      }),
    ]),
  };
  return el(
    'div',
    { id: `chart-${id}`, class: 'figure-table' },
    el('h3', {}, chart.title),
    chart.note ? el('p', { class: 'hint' }, chart.note) : null,
    tableElement(table, chart.title),
  );
}

function drawn(chart: Chart, id: string): HTMLElement {
  const shown = chart.series.map(() => true);
  const controls =
    chart.series.length > 1
      ? [
          choices(
            'Series',
            chart.series.map((s, at) => ({ label: s.name, on: true, colour: at })),
            false,
            on => {
              on.forEach((is, at) => (shown[at] = is));
              figure.draw();
            },
          ),
        ]
      : [];
  const figure: Figure = new Figure({
    id,
    title: chart.title,
    hint: chart.note,
    label: () =>
      `${chart.kind} chart of ${axisTitle(chart.y)} against ${axisTitle(chart.x)}: ${chart.series.map(s => `${s.name}, ${inWords(s)}`).join('; ')}.`,
    height: width => (chart.kind === 'stacked' ? stackedHeight(chart) : width < 560 ? 300 : 360),
    controls,
    table: () => tableOf(chart),
    option: ({ colours: c, width }) =>
      chart.kind === 'stacked' ? stackedOption(chart, shown, c, width) : option(chart, shown, c),
  });
  return figure.element;
}

function inWords(series: Series): string {
  const values = series.points.map(p => p[1]);
  if (values.length === 0) return 'empty';
  const [low, high] = values.reduce(([l, h], v) => [Math.min(l, v), Math.max(h, v)], [Infinity, -Infinity]);
  return `from ${num(low)} to ${num(high)}`;
}

function option(chart: Chart, shown: boolean[], c: Colours) {
  const named = chart.x.categories.length > 0;
  const visible = chart.series.flatMap((series, at) => (shown[at] ? [{ series, at }] : []));
  const bars = chart.kind === 'bar' || chart.kind === 'histogram';
  const slots =
    bars && !named
      ? [...new Set(chart.series.flatMap(s => s.points.map(p => p[0])))].sort((a, b) => a - b)
      : null;
  const xType = named || slots ? 'category' : chart.x.log ? 'log' : 'value';
  const scale = chart.y.log
    ? logAxis(visible.flatMap(v => v.series.points.flatMap(([, y, low, high]) => [y, low ?? y, high ?? y])))
    : null;
  const ticks = scale?.customValues ? { customValues: scale.customValues } : {};
  const placeOf = (x: number) => (slots ? slots.indexOf(x) : x);
  return {
    grid: { left: 66, right: 30, top: 36, bottom: chart.kind === 'timeline' ? 84 : 50 },
    xAxis: {
      ...axisLook(c),
      type: xType,
      name: axisTitle(chart.x),
      nameLocation: 'middle',
      nameGap: 30,
      ...(named ? { data: chart.x.categories } : slots ? { data: slots.map(num) } : {}),
      ...(chart.kind === 'line' && xType === 'value' ? { scale: true } : {}),
    },
    yAxis: {
      ...axisLook(c),
      ...(scale ?? { type: 'value' }),
      name: axisTitle(chart.y),
      axisTick: { ...axisLook(c).axisTick, ...ticks },
      axisLabel: { ...axisLook(c).axisLabel, ...ticks, formatter: plain },
      nameTextStyle: { color: c.soft, align: 'left', padding: [0, 0, 0, -54] },
    },
    dataZoom:
      chart.kind === 'timeline'
        ? [
            { type: 'inside', zoomOnMouseWheel: 'ctrl', filterMode: 'none' },
            { ...slider(c), filterMode: 'none' },
          ]
        : [],
    tooltip: {
      trigger: 'axis',
      ...tipLook(c),
      axisPointer: { type: bars ? 'shadow' : 'line', lineStyle: { color: c.soft }, label: { show: false } },
      formatter: (
        hits: {
          seriesType: string;
          seriesName: string;
          value: number[];
          color: string;
          axisValue: number | string;
        }[],
      ) => {
        const rows = hits
          .filter(hit => hit.seriesType !== 'custom')
          .map(
            hit =>
              [hit.seriesName, `${num(hit.value[1])} ${chart.y.unit}`, hit.color] as [string, string, string],
          );
        const x = hits[0]?.axisValue;
        return tip(`${typeof x === 'number' ? num(x) : (x ?? '')} ${named ? '' : chart.x.unit}`, rows);
      },
    },
    series: visible.flatMap(({ series, at }) => {
      const colour = look(c, at);
      const data = series.points.map(([x, y]) => [placeOf(x), y]);
      const main = bars
        ? {
            type: 'bar',
            name: series.name,
            data,
            itemStyle: { color: colour.color },
            ...(chart.kind === 'histogram' ? { barGap: '0%', barCategoryGap: '8%' } : { barMaxWidth: 40 }),
          }
        : {
            type: 'line',
            name: series.name,
            data,
            showSymbol: chart.kind === 'line' && series.points.length <= 60,
            symbolSize: 6,
            sampling: 'minmax',
            lineStyle: { ...colour, width: 2 },
            itemStyle: { color: colour.color },
          };
      const ends = series.points.filter(p => p[2] !== null && p[3] !== null);
      if (ends.length === 0 || chart.kind === 'histogram') return [main];
      return [
        main,
        {
          type: 'custom',
          silent: true,
          z: 3,
          data: ends.map(([x, , low, high]) => [placeOf(x), low, high]),
          encode: { x: 0, y: [1, 2] },
          renderItem: (_: unknown, api: Api) => {
            const place = visible.findIndex(v => v.at === at);
            // Over named places the intervals of several lines would lie on each other.
            const beside = named ? (place - (visible.length - 1) / 2) * BESIDE_PX : 0;
            const dx = bars ? offset(api, visible.length, place) : beside;
            return whisker(api, bars ? c.text : colour.color, dx);
          },
        },
      ];
    }),
  };
}

interface Api {
  value: (at: number) => number;
  coord: (point: [number, number]) => [number, number];
  barLayout: (layout: object) => { offsetCenter: number }[];
}

/** Between the intervals of two lines at one place. */
const BESIDE_PX = 5;

function offset(api: Api, count: number, at: number): number {
  return api.barLayout({ count, barMaxWidth: 40 })[at]?.offsetCenter ?? 0;
}

function whisker(api: Api, colour: string, dx: number) {
  const [x, low] = api.coord([api.value(0), api.value(1)]);
  const [, high] = api.coord([api.value(0), api.value(2)]);
  const line = (x1: number, y1: number, x2: number, y2: number) => ({
    type: 'line',
    shape: { x1: x1 + dx, y1, x2: x2 + dx, y2 },
    style: { stroke: faded(colour, 0.8), lineWidth: 1.5 },
  });
  return {
    type: 'group',
    children: [line(x, low, x, high), line(x - 3, low, x + 3, low), line(x - 3, high, x + 3, high)],
  };
}
