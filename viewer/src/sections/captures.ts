// Captures section: the content of captures that runs sent, or that this page describes.

import type { Page } from '../data';
import { el } from '../dom';
import { chartElement } from '../drawing';

export function capturesSection(page: Page): HTMLElement | null {
  if (page.captures.length === 0) return null;
  const heading =
    page.runs.length > 0 ? el('h2', {}, 'What was sent') : el('h1', {}, 'What the captures are made of');
  return el(
    'section',
    { id: 'captures' },
    heading,
    ...page.captures.flatMap(({ title, facts, charts }) => {
      const lengths = charts.filter(chart => chart.kind === 'histogram');
      const at = Math.max(
        0,
        charts.findIndex(chart => chart.kind === 'histogram'),
      );
      const others = charts.filter(chart => chart.kind !== 'histogram');
      return [
        title ? el('h3', { class: 'group' }, title) : null,
        ...facts.map(fact => el('p', { class: 'hint' }, fact)),
        ...others.slice(0, at).map(chartElement),
        // Two beside each other, where there is room: they are there to be compared.
        lengths.length > 0 ? el('div', { class: 'pairs' }, ...lengths.map(chartElement)) : null,
        ...others.slice(at).map(chartElement),
      ];
    }),
  );
}
