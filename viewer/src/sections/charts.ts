// Charts section: the scenario's figures from the analysis.
//
// Charts over the scenario's varied parameters come first, as they answer its question. All others follow
// further down.

import { analysed, type Chart, type Page } from '../data';
import { el } from '../dom';
import { chartElement } from '../drawing';

export function variedSection(page: Page): HTMLElement | null {
  // Of several platforms, each line has a figure of its own instead.
  const charts = merged(page).filter(chart => isVaried(chart) && !(page.overlay && chart.kind === 'line'));
  return section('varied', 'What the arms differ in', charts);
}

export function chartsSection(page: Page): HTMLElement | null {
  const others = merged(page).filter(chart => !isVaried(chart));
  return section('figures', 'Figures of this scenario', others);
}

/** Kinds that stand over what arms differ in, where their places have names. */
const OVER_ARMS = ['line', 'bar', 'stacked'];

const isVaried = (chart: Chart) => OVER_ARMS.includes(chart.kind) && chart.x.categories.length > 0;

function section(id: string, title: string, charts: Chart[]): HTMLElement | null {
  if (charts.length === 0) return null;
  return el('section', { id }, el('h2', {}, title), ...charts.map(chartElement));
}

/** The same figure of several runs becomes one, with each run's series in it; but bars of two runs are no one bar. */
function merged(page: Page): Chart[] {
  const several = page.runs.length > 1;
  const byId = new Map<string, Chart>();
  for (const { run, result, index } of analysed(page)) {
    for (const chart of result.charts) {
      if (several && chart.kind === 'stacked') {
        byId.set(`${chart.id} ${index}`, { ...chart, title: `${chart.title}, ${run.name}` });
        continue;
      }
      const series = chart.series.map(s => (several ? { ...s, name: `${s.name}, ${run.name}` } : s));
      const key = `${chart.kind} ${chart.id}`;
      const known = byId.get(key);
      if (known) known.series.push(...series);
      else byId.set(key, { ...chart, series });
    }
  }
  return [...byId.values()];
}
