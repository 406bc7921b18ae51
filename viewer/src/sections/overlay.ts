// Overlay section: runs of the same question side by side, with the platform of each.

import type { Page } from '../data';
import { el, tableElement } from '../dom';
import { chartElement } from '../drawing';

export function overlaySection(page: Page): HTMLElement | null {
  const overlay = page.overlay;
  if (!overlay) return null;
  const whats = overlay.platforms[0]?.facts.map(([what]) => what) ?? [];
  const table = {
    head: ['platform', ...whats],
    rows: overlay.platforms.map(({ name, facts }) => [name, ...facts.map(([, which]) => which || null)]),
    words: [0, ...whats.map((_, at) => at + 1)],
  };
  return el(
    'section',
    { id: 'platforms' },
    el('h2', {}, 'Platforms side by side'),
    el('p', {}, `These runs differ in ${overlay.differ_in.join(', ')}.`),
    tableElement(table, 'On what each run was made'),
    ...overlay.charts.map(chartElement),
  );
}
