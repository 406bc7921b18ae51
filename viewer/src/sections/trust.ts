// Checks section: validity of the figures, and the command that repeats the run.

import { judgedBy, type Host, type Page, type Result, type Run } from '../data';
import { el, tableElement } from '../dom';
import { bytes, count, estimate, inUnit, num, outcomeTitle, plain, range, signedPct } from '../format';

export function trustSection(page: Page): HTMLElement {
  return el(
    'section',
    { id: 'trust' },
    el('h2', {}, 'Checks and conditions'),
    ...page.runs.map(run =>
      el(
        'article',
        { class: 'trust' },
        page.runs.length > 1 ? el('h3', {}, run.name) : null,
        checks(run),
        warnings(run),
        conditions(run),
        again(run),
      ),
    ),
    madeBy(page, 'what the run directories hold'),
  );
}

/** The last words of a page. */
export function madeBy(page: Page, shows: string): HTMLElement {
  return el(
    'footer',
    {},
    `Made by toll ${page.toll_version}. This page asks nothing of any network; it shows ${shows}.`,
  );
}

/** `null`: too little was measured to tell; `fact`: there is nothing to hold it against. */
type Good = boolean | null | 'fact';
type Check = [name: string, found: string, good: Good];

function checks(run: Run): HTMLElement {
  const result = run.result;
  const { aa, mde, self_cost: own } = result;
  const defined = (name: string) => result.definitions.find(d => d.name === name);
  const unit = (name: string) => defined(name)?.unit ?? '';
  const title = (name: string) => outcomeTitle(defined(name), name);
  const again = result.arms.find(arm => arm.name === aa?.arm);
  const aaOutcome = again ? judgedBy(result, again) : result.primary;
  const primary = defined(result.primary);
  const achieved = mde?.achieved ?? null;
  const inOwnUnit = achieved === null ? null : inUnit(achieved, primary?.unit ?? '');
  const found = mde?.achieved_pct ? `${num(mde.achieved_pct)}%` : inOwnUnit;
  const margin =
    primary?.compare === 'difference' && primary.margin
      ? inUnit(primary.margin, primary.unit)
      : `${plain(result.margin_pct)}%`;
  const rows: Check[] = [
    aa
      ? [
          `A/A: the baseline against itself (${aa.arm})`,
          `${estimate(aa, unit(aaOutcome))}, ${range(aa, unit(aaOutcome))}`,
          aa.ok,
        ]
      : ['A/A: the baseline against itself', 'was not part of this run', null],
    ...result.controls.map((control): Check => [
      `Control ${control.arm}: ${control.text}`,
      `${title(control.outcome)} ${estimate(control, unit(control.outcome))}, ${range(control, unit(control.outcome))}; expected ${control.expected_pct === 0 ? 'none' : signedPct(control.expected_pct)}`,
      control.ok,
    ]),
    [
      'Minimum detectable effect (80% power)',
      found !== null
        ? `±${found} on ${primary?.title ?? result.primary}${mde?.planned_pct ? `, predicted ±${num(mde.planned_pct)}%` : ''}` +
          `${mde?.rounds_for_margin ? `; ±${margin} needs ${mde.rounds_for_margin} rounds` : ''}`
        : mde?.planned_pct
          ? `predicted ±${num(mde.planned_pct)}%, unknown afterwards`
          : 'not known',
      isSmall(result),
    ],
    [
      'Rounds in which every variant has a window',
      `${result.rounds_done} of ${result.rounds_planned}`,
      result.complete && result.rounds_done >= result.rounds_planned,
    ],
    [
      "toll's own cost",
      `${takenOf(own)}, ${bytes(own.memory_peak_bytes)} of memory, ${bytes(own.written_bytes)} written`,
      'fact',
    ],
  ];
  const marked = (found: string, good: Good) => {
    if (good === 'fact') return [found];
    const [kind, words] =
      good === null ? ['', '? not conclusive'] : good ? [' ok', '✓ passed'] : [' bad', '✗ failed'];
    return [el('span', { class: `mark${kind}` }, words), ` ${found}`];
  };
  return el(
    'dl',
    { class: 'checks' },
    ...rows.map(([name, found, good]) =>
      el('div', {}, el('dt', {}, name), el('dd', {}, ...marked(found, good))),
    ),
  );
}

/** What toll took of the host, and of a server with users. */
function takenOf(own: Result['self_cost']): string {
  const off = own.while_off;
  if (!off) return `${num(own.cpu_pct_of_one_core)}% of one CPU`;
  const share = off.queries_pct ? ` (${num(off.queries_pct)}% of all)` : '';
  return (
    `with no method on ${num(off.toll_cpu_pct + off.guard_cpu_pct + off.tap_cpu_pct)}% of the host's CPUs ` +
    `(toll ${num(off.toll_cpu_pct)}, guard ${num(off.guard_cpu_pct)}, tap ${num(off.tap_cpu_pct)}), ` +
    `${num(off.queries_per_s)} queries a second${share}, ${off.connections} connections`
  );
}

/** Whether this run could find what is as small as the margin; `null`: that cannot be told. */
function isSmall(result: Result): boolean | null {
  const { mde } = result;
  if (mde?.achieved_pct) return mde.achieved_pct <= result.margin_pct;
  const margin = result.definitions.find(d => d.name === result.primary)?.margin;
  return mde?.achieved && margin ? mde.achieved <= margin : null;
}

function warnings(run: Run): HTMLElement {
  const list = run.result.warnings;
  if (list.length === 0) return el('p', {}, 'No warning was raised.');
  return el(
    'div',
    { class: 'warnings' },
    el('h4', {}, list.length === 1 ? 'One warning' : `${list.length} warnings`),
    el(
      'ul',
      {},
      ...list.map(w =>
        el(
          'li',
          {},
          el('code', {}, w.code),
          w.arm ? el('b', {}, ` ${w.arm}`) : null,
          ` ${w.text} `,
          el('span', { class: 'advice' }, w.advice),
        ),
      ),
    ),
  );
}

function conditions(run: Run): HTMLElement {
  const { host, server, workload: load, seed, toll_version } = run.result;
  const every = load.reconnect_every;
  const connections =
    every === 1 ? ', a connection for each event' : every ? `, a new connection after ${every} events` : '';
  const rate = load.rate_per_s ? `, ${num(load.rate_per_s)} events/s intended` : ', closed loop';
  const facts: [string, string][] = [
    [
      'Server',
      server ? `${server.flavour} ${server.version}, ${server.kind}, ${server.address}` : 'none in sight',
    ],
    [
      'Load',
      load.driver === 'none'
        ? "none of toll's"
        : `${load.profile} by ${load.driver}, ${load.threads} ${load.threads === 1 ? 'thread' : 'threads'} over ${load.transport}, ${load.tables} ${load.tables === 1 ? 'table' : 'tables'} of ${count(load.rows)} rows, ${load.prepared ? 'prepared' : 'text'} statements${connections}${rate}`,
    ],
    ...hostFacts(host),
    ['Seed', String(seed)],
    ['toll', toll_version],
    ['Run directory', run.directory],
  ];
  return el(
    'div',
    {},
    el('h4', {}, 'On what it was measured'),
    el(
      'dl',
      { class: 'conditions' },
      ...facts.map(([k, v]) => el('div', {}, el('dt', {}, k), el('dd', {}, v))),
    ),
    server ? list('Server settings that toll chose', server.config.map(split)) : null,
    list('Server variables that bear on the result', Object.entries(host.server_variables)),
    list('Kernel settings', Object.entries(host.settings)),
    list(
      'Tools',
      host.tools.map(t => [t.name, t.version ?? 'missing']),
    ),
  );
}

function hostFacts(host: Host): [string, string][] {
  return [
    [
      'Host',
      `${host.label}: ${host.cpus} CPUs (${host.cpu_model}, ${host.arch}), ${bytes(host.memory_bytes)} of memory`,
    ],
    ['System', `${host.os}, Linux ${host.kernel}${host.virtualisation ? `, ${host.virtualisation}` : ''}`],
    ['Disk', host.disk],
  ];
}

const split = (setting: string): [string, string] => {
  const at = setting.indexOf('=');
  return at < 0 ? [setting, ''] : [setting.slice(0, at), setting.slice(at + 1)];
};

function list(title: string, rows: [string, string][]): HTMLElement | null {
  if (rows.length === 0) return null;
  const table = tableElement({ head: ['name', 'value'], rows, words: [0, 1] }, title);
  return el('details', {}, el('summary', {}, `${title} (${rows.length})`), table);
}

function again(run: Run): HTMLElement {
  const { command } = run.result;
  const said = el('span', { class: 'said', role: 'status' });
  const code = el('code', { tabindex: 0 }, command);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      said.textContent = 'copied';
    } catch {
      getSelection()?.selectAllChildren(code);
      said.textContent = 'selected: copy with the keyboard';
    }
  };
  return el(
    'div',
    { class: 'again' },
    el('h4', {}, 'The command that repeats it'),
    el('pre', {}, code),
    el('button', { type: 'button', onclick: () => void copy() }, 'Copy command'),
    said,
  );
}
