// Charting library modules of the page.
//
// The one place that names the library's modules, so that the page's size is decided here.

import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { DataZoomComponent, GridComponent, TooltipComponent } from 'echarts/components';
import { init, use, type EChartsCoreOption, type EChartsType } from 'echarts/core';
import { CanvasRenderer } from 'echarts/renderers';
import { el } from './dom';
import { faded, type Colours } from './theme';

use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  DataZoomComponent,
  GridComponent,
  TooltipComponent,
  CanvasRenderer,
]);

export { init };
export type { EChartsCoreOption as Option, EChartsType as Chart };

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

/** What every chart of the page has in common. */
export function base(c: Colours): EChartsCoreOption {
  return {
    animation: false,
    useUTC: true,
    backgroundColor: 'transparent',
    textStyle: { fontFamily: FONT, color: c.text, fontSize: 12 },
    tooltip: {
      ...tipLook(c),
      axisPointer: { lineStyle: { color: c.soft }, label: { show: false } },
    },
  };
}

/** The box of a tooltip. */
export function tipLook(c: Colours) {
  return {
    confine: true,
    backgroundColor: c.ground,
    borderColor: c.line,
    textStyle: { color: c.text, fontSize: 12 },
  };
}

export function axisLook(c: Colours) {
  return {
    nameTextStyle: { color: c.soft, fontSize: 12 },
    axisLabel: { color: c.soft, hideOverlap: true },
    axisLine: { lineStyle: { color: c.line } },
    axisTick: { lineStyle: { color: c.line } },
    splitLine: { lineStyle: { color: c.faint } },
    minorSplitLine: { show: false },
  };
}

/** A tooltip made of text nodes, so that no name in it can be taken for markup. */
export function tip(title: string, rows: [name: string, value: string, colour?: string][]): HTMLElement {
  return el(
    'div',
    { class: 'tip' },
    el('strong', {}, title),
    ...rows.map(([name, value, colour]) => {
      const swatch = el('span', { class: 'swatch' });
      if (colour) swatch.style.background = colour;
      return el('div', {}, colour ? swatch : null, name ? `${name} ` : null, el('b', {}, value));
    }),
  );
}

/** The strip under a timeline that shows and moves the stretch in view. */
export function slider(c: Colours) {
  return {
    type: 'slider',
    height: 20,
    bottom: 8,
    brushSelect: false,
    borderColor: c.line,
    fillerColor: faded(c.series[0] as string, 0.12),
    handleStyle: { color: c.ground, borderColor: c.soft },
    moveHandleStyle: { color: c.line },
    emphasis: { handleStyle: { borderColor: c.text }, moveHandleStyle: { color: c.soft } },
    dataBackground: { lineStyle: { color: c.line }, areaStyle: { color: c.faint } },
    selectedDataBackground: { lineStyle: { color: c.soft }, areaStyle: { color: c.faint } },
    textStyle: { color: c.soft },
  };
}
