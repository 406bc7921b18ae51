// Timeline section: load, host and server over the whole run, with every variant's window and every stall.

import type { Page, Run } from '../data';
import { choices, el } from '../dom';
import { bytes, clock, num } from '../format';
import { View } from '../view';
import { panelFigure } from './panel';

/** Stalls listed one by one; more are only drawn. */
const LISTED_STALLS = 200;

export function timelineSection(page: Page): HTMLElement {
  const section = el('section', { id: 'timelines' }, el('h2', {}, 'Timelines'));
  const runs = page.runs.filter(run => run.timeline.panels.length > 0);
  if (runs.length === 0) {
    section.append(el('p', { class: 'empty' }, 'No samples were recorded.'));
    return section;
  }
  const bodies = runs.map((run, at) => timelines(run, runs.length > 1 ? `${at + 1}-` : ''));
  if (runs.length > 1) {
    const items = runs.map((run, at) => ({ label: run.name, on: at === 0 }));
    section.append(
      choices('Run', items, true, on => {
        bodies.forEach((body, at) => (body.element.hidden = !on[at]));
        bodies[on.indexOf(true)]?.view.redraw();
      }),
    );
    bodies.forEach((body, at) => {
      body.element.hidden = at > 0;
      body.element.dataset.run = runs[at]?.name;
    });
  }
  section.append(...bodies.map(body => body.element));
  return section;
}

function timelines(run: Run, prefix: string): { element: HTMLElement; view: View } {
  const view = new View(run);
  const figures = run.timeline.panels.map((panel, at) => panelFigure(view, panel, prefix, at));
  view.follow(figures);
  const element = el(
    'div',
    { class: 'timelines' },
    el(
      'p',
      { class: 'hint' },
      'Shaded stretches are windows, by variant; lighter edges are settling. ',
      view.stalls.length > 0 ? 'Stalls are marked by bars with a triangle. ' : null,
      'All charts share one stretch of time: drag to move it, Ctrl and wheel (or pinch) to zoom, or use the keys + − ← → 0 on a chart.',
      run.timeline.thinned ? ' Long series are shown by the lowest and highest of each stretch.' : null,
    ),
    controls(view),
    emphasis(view),
    ...figures.slice(0, 2).map(figure => figure.element),
    stallList(view),
    el('h3', { class: 'group' }, 'Host, server and toll itself'),
    el('div', { class: 'host-series' }, ...figures.slice(2).map(figure => figure.element)),
  );
  return { element, view };
}

function controls(view: View): HTMLElement {
  const button = (text: string, label: string, act: () => void) =>
    el('button', { type: 'button', 'aria-label': label, title: label, onclick: act }, text);
  const rounds = [...new Set(view.run.timeline.spans.map(span => span.round))];
  const select = el(
    'select',
    {
      'aria-label': 'Show a round',
      onchange: () => {
        const spans = view.run.timeline.spans.filter(span => String(span.round) === select.value);
        const [first, last] = [spans[0], spans.at(-1)];
        if (first && last) view.show(first.start_ms, last.stop_ms ?? view.end);
        else view.showAll();
      },
    },
    el('option', { value: '' }, 'Whole run'),
    ...rounds.map(round => el('option', { value: round }, `Round ${round + 1}`)),
  );
  const where = el('output', { class: 'where' });
  view.onmove = () => (where.textContent = `${clock(view.from)} to ${clock(view.to)} of ${clock(view.end)}`);
  view.onmove();
  return el(
    'div',
    { class: 'zoom', role: 'group', 'aria-label': 'Stretch of time shown' },
    button('−', 'Zoom out', () => view.zoom(2)),
    button('+', 'Zoom in', () => view.zoom(0.5)),
    button('←', 'Earlier', () => view.pan(-0.5)),
    button('→', 'Later', () => view.pan(0.5)),
    button('Whole run', 'Show the whole run', () => view.showAll()),
    rounds.length > 1 ? select : null,
    where,
  );
}

function emphasis(view: View): HTMLElement {
  const names = ['all', ...view.arms];
  const items = names.map((label, at) => ({ label, on: at === 0, ...(at > 0 ? { colour: at - 1 } : {}) }));
  return choices('Shade', items, true, on => {
    const at = on.indexOf(true);
    view.emphasised = at > 0 ? (names[at] ?? null) : null;
    view.redraw();
  });
}

function stallList(view: View): HTMLElement {
  if (view.stalls.length === 0) return el('p', {}, 'No stall was found.');
  const pct = (value: number | null) => (value === null ? '–' : `${num(value)}%`);
  const rows = view.stalls.slice(0, LISTED_STALLS).map(({ stall, from, to }) =>
    el(
      'tr',
      {},
      el(
        'th',
        { scope: 'row' },
        el(
          'button',
          {
            type: 'button',
            class: 'plain',
            'aria-label': `Show the stall at ${clock(from, true)}`,
            onclick: () => view.show(from - 3_000, to + 3_000),
          },
          clock(from, true),
        ),
      ),
      el('td', {}, stall.arm),
      el('td', {}, stall.kind),
      ...[
        `${num((to - from) / 1000)} s`,
        bytes(stall.dirty_bytes),
        bytes(stall.writeback_bytes),
        pct(stall.psi_io_pct),
        pct(stall.psi_cpu_pct),
        stall.disk_write_await_ms === null ? '–' : `${num(stall.disk_write_await_ms)} ms`,
      ].map(text => el('td', { class: 'number' }, text)),
    ),
  );
  const head = [
    'at',
    'variant',
    'kind',
    'lasted',
    'Dirty',
    'Writeback',
    'I/O pressure',
    'CPU pressure',
    'write wait',
  ];
  const more = view.stalls.length - rows.length;
  return el(
    'details',
    { class: 'stalls' },
    el('summary', {}, view.stalls.length === 1 ? 'One stall' : `${view.stalls.length} stalls`),
    el(
      'div',
      { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Stalls' },
      el(
        'table',
        {},
        el('caption', { class: 'unseen' }, 'Stalls, with the highest values seen beside them'),
        el(
          'thead',
          {},
          el('tr', {}, ...head.map((h, at) => el('th', { scope: 'col', class: at > 2 && 'number' }, h))),
        ),
        el('tbody', {}, ...rows),
      ),
    ),
    more > 0 ? el('p', {}, `${more} more are drawn, not listed.`) : null,
  );
}
