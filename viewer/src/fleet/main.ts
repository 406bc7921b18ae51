// Page of `toll-fleet serve`: the load by class, then classes, hosts, and what was seen of each host.

import { choices, el } from '../dom';
import { count, localTime, micros, num, seconds } from '../format';
import {
  ask,
  type ClassOnHost,
  type ClassRow,
  type CoverageRow,
  type Extent,
  type HostRow,
  type LoadStep,
  type Shown,
} from './ask';
import { grid, type Column } from './grid';
import { drawLoad, loadOf } from './load';

const REFRESH_MS = 60_000;
const ALL_DAYS_MS = 30 * REFRESH_MS;
const HOUR_US = 3_600e6;
const CLOCKS_APART_US = HOUR_US;
/** Up to the last figures there are; the last is all. */
const RANGES: [string, number][] = [
  ['1 hour', HOUR_US],
  ['6 hours', 6 * HOUR_US],
  ['1 day', 24 * HOUR_US],
  ['7 days', 168 * HOUR_US],
  ['all', Infinity],
];
const TABS = ['Classes', 'Hosts', 'Coverage'] as const;
type Tab = (typeof TABS)[number];

/** What the link of the page holds, so that it can be sent to somebody. */
interface View {
  range: string;
  since: number | null;
  until: number | null;
  cluster: string | null;
  tab: Tab;
  open: string | null;
}

function readView(): View {
  const link = new URLSearchParams(location.hash.slice(1));
  const number = (name: string) => (link.has(name) ? Number(link.get(name)) : null);
  const tab = TABS.find(tab => tab === link.get('tab')) ?? 'Classes';
  const range = RANGES.find(([name]) => name === link.get('range'))?.[0] ?? '1 day';
  const since = number('since');
  const until = number('until');
  return { range, since, until, cluster: link.get('cluster'), tab, open: link.get('class') };
}

function keepView(view: View): void {
  const link = new URLSearchParams({ range: view.range, tab: view.tab });
  if (view.since !== null) link.set('since', String(view.since));
  if (view.until !== null) link.set('until', String(view.until));
  if (view.cluster !== null) link.set('cluster', view.cluster);
  if (view.open !== null) link.set('class', view.open);
  history.replaceState(null, '', `#${link}`);
}

const time = (us: number) => localTime(us / 1000);
const millis = (ms: number) => micros(ms * 1000);
const perSecond = (n: number, shown: Shown) => num((n * 1e6) / Math.max(shown.untilUs - shown.sinceUs, 1));

const view = readView();
let asked = new AbortController();
let known = new Map<string, Extent>();
let knownAt = 0;
let chart: ReturnType<typeof drawLoad> | null = null;

const facts = el('ul', { class: 'facts' });
const ranges = el('div');
const clusters = el('select', { 'aria-label': 'Cluster' });
const canvas = el('div', { class: 'canvas', id: 'load' });
const whole = el('button', { type: 'button', class: 'plain', hidden: true }, 'back to the whole range');
const content = el('div', { class: 'scroll', id: 'content' });
const trouble = el('p', { class: 'notice missing', role: 'alert', hidden: true });

/** The stretch of time that the view names, of what the tables have. */
function shownOf(extents: Extent[]): Shown {
  const own = extents.filter(extent => view.cluster === null || extent.cluster === view.cluster);
  const first = Math.min(...own.map(extent => extent.first_us));
  const newest = Math.max(...own.map(extent => extent.last_us));
  const length = RANGES.find(([name]) => name === view.range)?.[1] ?? Infinity;
  const now = Date.now() * 1000;
  // A host whose clock is far ahead has no say in what the last hours are.
  const isAhead = newest > now + CLOCKS_APART_US && first < now && length !== Infinity;
  const last = isAhead ? now : newest;
  return {
    sinceUs: view.since ?? Math.max(first, last - length),
    untilUs: view.until ?? last,
    cluster: view.cluster,
  };
}

function classColumns(shown: Shown): Column<ClassRow>[] {
  return [
    { title: 'Query', value: row => row.summary, text: row => row.summary },
    { title: 'Queries', value: row => row.n, text: row => count(row.n) },
    { title: 'per second', value: row => row.n, text: row => perSecond(row.n, shown) },
    { title: 'Time', value: row => row.time_s, text: row => seconds(row.time_s) },
    { title: 'Share', value: row => row.time_percent, text: row => `${num(row.time_percent)}%` },
    { title: 'p50', value: row => row.p50_ms, text: row => millis(row.p50_ms) },
    { title: 'p99', value: row => row.p99_ms, text: row => millis(row.p99_ms) },
    { title: 'Max', value: row => row.max_ms, text: row => millis(row.max_ms) },
    { title: 'Errors', value: row => row.errors, text: row => count(row.errors) },
    { title: 'Hosts', value: row => row.hosts, text: row => count(row.hosts) },
  ];
}

const onHostColumns: Column<ClassOnHost>[] = [
  { title: 'Host', value: row => row.host, text: row => row.host },
  { title: 'Cluster', value: row => row.cluster, text: row => row.cluster },
  { title: 'Queries', value: row => row.n, text: row => count(row.n) },
  { title: 'Time', value: row => row.time_s, text: row => seconds(row.time_s) },
  { title: 'Mean', value: row => row.mean_ms, text: row => millis(row.mean_ms) },
  { title: 'p50', value: row => row.p50_ms, text: row => millis(row.p50_ms) },
  { title: 'p99', value: row => row.p99_ms, text: row => millis(row.p99_ms) },
  { title: 'Max', value: row => row.max_ms, text: row => millis(row.max_ms) },
  { title: 'Errors', value: row => row.errors, text: row => count(row.errors) },
];

const hostColumns: Column<HostRow>[] = [
  { title: 'Host', value: row => row.host, text: row => row.host },
  { title: 'Cluster', value: row => row.cluster, text: row => row.cluster },
  { title: 'Queries', value: row => row.n, text: row => count(row.n) },
  { title: 'Time', value: row => row.time_s, text: row => seconds(row.time_s) },
  {
    title: 'Against its cluster',
    hint: 'Its query time, over what the other hosts of its cluster would have taken for the same queries',
    value: row => row.ratio,
    text: row => (row.ratio === null ? '–' : `${num(row.ratio)} times`),
  },
  {
    title: 'Most of it',
    hint: 'The class that adds the most time',
    value: row => row.most_s,
    text: row => (row.most_s === null ? '–' : `${row.summary}, ${seconds(row.most_s)}`),
  },
  { title: 'Errors', value: row => row.errors, text: row => count(row.errors) },
];

const coverageColumns: Column<CoverageRow>[] = [
  { title: 'Host', value: row => row.host, text: row => row.host },
  { title: 'Cluster', value: row => row.cluster, text: row => row.cluster },
  { title: 'Source', value: row => row.source, text: row => row.source },
  { title: 'First', value: row => row.first, text: row => row.first.replace('T', ' ') },
  { title: 'Last', value: row => row.last, text: row => row.last.replace('T', ' ') },
  { title: 'Seen for', value: row => row.seen_s, text: row => seconds(row.seen_s) },
  { title: 'Commands', value: row => row.commands, text: row => count(row.commands) },
  { title: 'Uncertain', value: row => row.tainted, text: row => count(row.tainted) },
  { title: 'Lost', value: row => row.lost, text: row => count(row.lost) },
  { title: 'Sampled', value: row => row.sampled_percent, text: row => `${num(row.sampled_percent)}%` },
];

async function openClass(row: ClassRow, shown: Shown): Promise<HTMLElement> {
  const rows = await ask<ClassOnHost>(`classes/${row.class}`, shown);
  return el(
    'div',
    {},
    el('pre', {}, row.fingerprint || '(classes that the digest did not keep apart)'),
    el('p', { class: 'hint' }, `Class ${row.class}`),
    grid({ caption: `${row.summary} on each host`, columns: onHostColumns, rows }),
  );
}

async function tabContent(shown: Shown, signal: AbortSignal): Promise<HTMLElement> {
  switch (view.tab) {
    case 'Classes':
      return grid({
        caption: 'Classes by query time',
        columns: classColumns(shown),
        rows: await ask<ClassRow>('classes', shown, signal),
        open: row => openClass(row, shown),
        isOpen: row => row.class === view.open,
        opened: (row, isOpen) => {
          view.open = isOpen ? row.class : null;
          keepView(view);
        },
      });
    case 'Hosts':
      return grid({
        caption: 'Hosts compared with their clusters',
        columns: hostColumns,
        rows: await ask<HostRow>('hosts', shown, signal),
      });
    case 'Coverage':
      return grid({
        caption: 'What was seen of each host',
        columns: coverageColumns,
        rows: await ask<CoverageRow>('coverage', shown, signal),
      });
  }
}

/** Asks for all that the view shows; what was asked before and is not there yet is given up. */
async function show(): Promise<void> {
  asked.abort();
  asked = new AbortController();
  const { signal } = asked;
  keepView(view);
  document.documentElement.removeAttribute('data-drawn');
  try {
    const extents = await askExtents(signal);
    if (extents.length === 0) throw new Error('The tables have no rows yet.');
    showClusters(extents);
    const shown = shownOf(extents);
    const [steps, tab] = await Promise.all([ask<LoadStep>('load', shown, signal), tabContent(shown, signal)]);
    if (signal.aborted) return;
    const hosts = extents
      .filter(extent => view.cluster === null || extent.cluster === view.cluster)
      .reduce((sum, extent) => sum + extent.hosts, 0);
    facts.replaceChildren(
      el('li', {}, hosts === 1 ? '1 host' : `${count(hosts)} hosts`),
      el('li', {}, `${time(shown.sinceUs)} to ${time(shown.untilUs)}`),
    );
    whole.hidden = view.since === null && view.until === null;
    chart?.destroy();
    chart = drawLoad(canvas, loadOf(steps), (since, until) => {
      [view.since, view.until] = [Math.floor(since * 1e6), Math.ceil(until * 1e6)];
      void show();
    });
    content.replaceChildren(tab);
    trouble.hidden = true;
    document.documentElement.setAttribute('data-drawn', '');
  } catch (error) {
    if (signal.aborted) return;
    trouble.textContent =
      error instanceof TypeError ? 'toll-fleet does not answer: is it still running?' : String(error);
    trouble.hidden = false;
  }
}

/** Clusters of all days now and then, and in between what the last day has added: each day that is asked of costs requests. */
async function askExtents(signal: AbortSignal): Promise<Extent[]> {
  const now = Date.now();
  if (known.size === 0 || now - knownAt > ALL_DAYS_MS) {
    const all = await ask<Extent>('tables', undefined, signal);
    known = new Map(all.map(extent => [extent.cluster, extent]));
    knownAt = now;
  } else {
    const newest = Math.max(...[...known.values()].map(extent => extent.last_us));
    const sinceUs = Math.min(newest, now * 1000) - 24 * HOUR_US;
    const recent: Shown = { sinceUs, untilUs: Number.MAX_SAFE_INTEGER, cluster: null };
    for (const extent of await ask<Extent>('tables', recent, signal)) {
      const before = known.get(extent.cluster) ?? extent;
      known.set(extent.cluster, {
        cluster: extent.cluster,
        hosts: Math.max(before.hosts, extent.hosts),
        first_us: Math.min(before.first_us, extent.first_us),
        last_us: Math.max(before.last_us, extent.last_us),
      });
    }
  }
  return [...known.values()];
}

function showClusters(extents: Extent[]): void {
  const option = (value: string, text: string, selected: boolean) => el('option', { value, selected }, text);
  clusters.replaceChildren(
    option('', 'all clusters', view.cluster === null),
    ...extents.map(({ cluster }) => option(`=${cluster}`, cluster, cluster === view.cluster)),
  );
}

function start(): void {
  ranges.append(
    choices(
      'Range',
      RANGES.map(([label]) => ({ label, on: label === view.range })),
      true,
      on => {
        view.range = RANGES[on.indexOf(true)]?.[0] ?? view.range;
        [view.since, view.until] = [null, null];
        void show();
      },
    ),
  );
  clusters.addEventListener('change', () => {
    view.cluster = clusters.value === '' ? null : clusters.value.slice(1);
    void show();
  });
  whole.addEventListener('click', () => {
    [view.since, view.until] = [null, null];
    void show();
  });
  const tabs = choices(
    'Table',
    TABS.map(label => ({ label, on: label === view.tab })),
    true,
    on => {
      view.tab = TABS[on.indexOf(true)] ?? 'Classes';
      void show();
    },
  );
  document
    .getElementById('page')
    ?.append(
      el('header', {}, el('strong', { class: 'brand' }, 'toll'), ranges, clusters, facts),
      el(
        'main',
        {},
        trouble,
        el(
          'section',
          {},
          el('h2', {}, 'Average active queries'),
          el(
            'p',
            { class: 'hint' },
            'Query time in each second of time, by class. Drag over the chart to choose a stretch. ',
          ),
          whole,
          canvas,
        ),
        el('section', {}, tabs, content),
      ),
    );
  window.addEventListener('resize', () => chart?.resize());
  // Charts take their colours from the style sheet when they are drawn.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => void show());
  setInterval(() => {
    const isLive = view.since === null && view.until === null && !document.hidden && view.open === null;
    if (isLive) void show();
  }, REFRESH_MS);
  void show();
}

start();
