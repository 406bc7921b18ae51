// Stacked bar charts of a composition.
//
// Horizontal, one below another: names are long, and up to forty of them must be distinguishable.

import { axisLook, tip, tipLook } from './chart';
import type { Chart } from './data';
import { num, plain } from './format';
import { look, type Colours } from './theme';

const ROW_PX = 22;
/** Above and below the rows. */
const AROUND_PX = 66;
/** By letter of a name; longer names than so many pixels are cut. */
const LETTER_PX = 7;
const WIDEST_PX = 260;

export function stackedHeight(chart: Chart): number {
  return AROUND_PX + ROW_PX * Math.max(chart.x.categories.length, 1);
}

export function stackedOption(chart: Chart, shown: boolean[], c: Colours, width: number) {
  const names = chart.x.categories;
  const visible = chart.series.flatMap((series, at) => (shown[at] ? [{ series, at }] : []));
  const longest = Math.max(...names.map(name => name.length), 0);
  const left = Math.min(16 + LETTER_PX * longest, WIDEST_PX, width * 0.4);
  const label = chart.y.unit ? `${chart.y.label}, ${chart.y.unit}` : chart.y.label;
  return {
    grid: { left, right: 30, top: 10, bottom: 50 },
    xAxis: {
      ...axisLook(c),
      type: 'value',
      name: label,
      nameLocation: 'middle',
      nameGap: 30,
      axisLabel: { ...axisLook(c).axisLabel, formatter: plain },
      // Shares of a whole end where the whole does.
      ...(isWhole(chart) && visible.length === chart.series.length ? { max: 100 } : {}),
    },
    yAxis: {
      ...axisLook(c),
      type: 'category',
      inverse: true,
      data: names,
      axisTick: { show: false },
      axisLabel: { color: c.text, interval: 0, width: left - 14, overflow: 'truncate', hideOverlap: false },
      splitLine: { show: false },
    },
    tooltip: {
      trigger: 'axis',
      ...tipLook(c),
      axisPointer: { type: 'shadow' },
      formatter: (hits: { seriesName: string; value: number[]; color: string; name: string }[]) =>
        tip(
          hits[0]?.name ?? '',
          hits.map((hit): [string, string, string] => [
            hit.seriesName,
            `${num(hit.value[0])} ${chart.y.unit}`,
            hit.color,
          ]),
        ),
    },
    series: visible.map(({ series, at }) => ({
      type: 'bar',
      stack: 'all',
      name: series.name,
      data: series.points.map(([place, value]) => [value, place]),
      barMaxWidth: ROW_PX - 6,
      itemStyle: { color: look(c, at).color, borderColor: c.ground, borderWidth: 1 },
    })),
  };
}

/** Whether each bar is a hundred percent of something. */
function isWhole(chart: Chart): boolean {
  if (chart.y.unit !== '%') return false;
  const sums = chart.x.categories.map((_, place) =>
    chart.series
      .flatMap(series => series.points.filter(point => point[0] === place))
      .reduce((sum, point) => sum + point[1], 0),
  );
  return sums.length > 0 && sums.every(sum => Math.abs(sum - 100) < 0.01);
}
