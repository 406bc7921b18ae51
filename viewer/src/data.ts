// What does toll put into the page?
//
// Mirrors `crates/toll/src/report/page.rs` and the run format. Never fetches: the data stand in the file.

export interface Page {
  toll_version: string;
  runs: Run[];
}

export interface Run {
  name: string;
  directory: string;
  missing: { part: string; why: string }[];
  plan: Plan | null;
  host: Host | null;
  result: Result | null;
  captured: Record<string, { low: number; high: number; windows: number }>;
  artefacts: RawArtefact[];
  timeline: Timeline;
}

export type Role = 'baseline' | 'treatment' | 'aa' | 'placebo' | 'positive-control';
export type Verdict =
  'baseline' | 'costly' | 'cheaper' | 'no-effect' | 'unclear' | 'no-interval' | 'not-compared';
export type Interval = [number, number];

export interface Server {
  kind: string;
  flavour: string;
  version: string;
  address: string;
  config: string[];
}

export interface Workload {
  driver: string;
  profile: string;
  transport: string;
  threads: number;
  tables: number;
  rows: number;
  prepared: boolean;
  /** Events that a connection carries before a new one is made; 0: all of them. */
  reconnect_every: number;
  rate_per_s: number | null;
}

export interface Plan {
  toll_version: string;
  command: string;
  scenario: string;
  question: string;
  profile: string;
  seed: number | string;
  baseline: string;
  primary: string;
  margin_pct: number;
  rounds: number;
  window_s: number;
  started_wall_us: number;
  server: Server;
  arms: {
    name: string;
    title: string;
    role: Role;
    command: string;
    artefact: string | null;
    unavailable: string | null;
  }[];
}

export interface Host {
  label: string;
  os: string;
  kernel: string;
  arch: string;
  cpu_model: string;
  cpus: number;
  virtualisation: string | null;
  memory_bytes: number;
  disk: string;
  cgroup: string;
  settings: Record<string, string>;
  tools: { name: string; version: string | null }[];
  server_variables: Record<string, string>;
}

/** What an outcome is called, and how arms compare in it. */
export interface Definition {
  name: string;
  unit: string;
  title: string;
  /** In fewer words; absent: the title. */
  head?: string;
  higher_is_better: boolean;
  compare: 'log-ratio' | 'difference' | 'absolute';
  /** Of a difference, in its unit. */
  margin?: number;
}

export interface Outcome {
  unit: string;
  higher_is_better: boolean;
  mean: number;
  sd: number;
  values: number[];
  toll_pct: number | null;
  ci95_pct: Interval | null;
  /** In the place of these, in `unit`, for what is compared as a difference or not at all. */
  effect?: number;
  ci95?: Interval;
  method: string;
  p: number | null;
  p_holm: number | null;
  verdict: Verdict;
}

export interface Artefact {
  kind: string;
  bytes: number;
  bytes_per_s: number;
  link_mbit_per_s: number;
  packets: number | null;
  received: number | null;
  dropped: number | null;
  queries: number | null;
  counted_by: string | null;
  /** Its session was under TLS: no query can be read from it. Absent: it was not. */
  encrypted?: boolean;
}

export interface RawArtefact {
  trial: number;
  round: number;
  arm: string;
  kind: string;
  bytes: number;
  window_bytes: number;
  window_packets: { captured: number; received: number; dropped: number } | null;
  queries: { queries: number; by: string } | null;
  executed: number;
  encrypted?: boolean;
}

export interface Arm {
  name: string;
  title: string;
  role: Role;
  command: string;
  /** The arm that it is compared with; absent for a baseline, and in runs of older versions. */
  against?: string;
  /** The outcome that it is judged by; absent: the run's primary one. */
  judged_by?: string;
  unavailable: string | null;
  windows: number;
  outcomes: Record<string, Outcome>;
  artefact: Artefact | null;
  executed: number;
  captured_ratio: number | null;
  stalls: { count: number; total_s: number; longest_s: number };
  latency_curve: [number, number][];
  notes: string[];
}

export interface Stall {
  arm: string;
  trial: number;
  kind: string;
  begin_mono_us: number;
  end_mono_us: number;
  dirty_bytes: number | null;
  writeback_bytes: number | null;
  psi_cpu_pct: number | null;
  psi_io_pct: number | null;
  psi_memory_pct: number | null;
  disk_write_await_ms: number | null;
}

export interface Result {
  toll_version: string;
  scenario: string;
  question: string;
  answer: string;
  profile: string;
  command: string;
  seed: number | string;
  baseline: string;
  primary: string;
  definitions: Definition[];
  columns: string[];
  panels: string[];
  margin_pct: number;
  alpha: number;
  rounds_planned: number;
  rounds_done: number;
  window_s: number;
  started_wall_us: number;
  duration_s: number;
  complete: boolean;
  host: Host;
  server: Server;
  workload: Workload;
  arms: Arm[];
  aa: {
    arm: string;
    toll_pct: number | null;
    ci95_pct: Interval | null;
    effect?: number;
    ci95?: Interval;
    ok: boolean;
  } | null;
  controls: {
    arm: string;
    outcome: string;
    expected_pct: number;
    toll_pct: number | null;
    ci95_pct: Interval | null;
    effect?: number;
    ci95?: Interval;
    ok: boolean;
    text: string;
  }[];
  mde: {
    planned_pct: number | null;
    achieved_pct: number | null;
    achieved?: number;
    rounds_for_margin: number | null;
  } | null;
  stalls: Stall[];
  self_cost: { cpu_s: number; cpu_pct_of_one_core: number; memory_peak_bytes: number; written_bytes: number };
  warnings: { code: string; arm: string | null; text: string; advice: string }[];
  advice: string[];
  charts: Chart[];
}

export interface Axis {
  label: string;
  unit: string;
  log: boolean;
  categories: string[];
}

export interface Chart {
  id: string;
  title: string;
  kind: 'line' | 'bar' | 'histogram' | 'timeline' | 'table';
  x: Axis;
  y: Axis;
  series: { name: string; points: [number, number, number | null, number | null][] }[];
  note: string;
}

export interface Span {
  trial: number;
  round: number;
  arm: string;
  start_ms: number;
  window_begin_ms: number | null;
  window_end_ms: number | null;
  stop_ms: number | null;
  failed: boolean;
  notes: string[];
}

export interface Panel {
  id: string;
  title: string;
  unit: string;
  log: boolean;
  one_at_a_time: boolean;
  series: { name: string; hidden: boolean; t: number; scale: number; v: (number | null)[] }[];
}

export interface Timeline {
  begin_mono_us: number;
  begin_wall_us: number | null;
  end_ms: number;
  spans: Span[];
  times: number[][];
  panels: Panel[];
  thinned: boolean;
}

/** The data block of this file. Throws where it holds none: the template was opened, not a report. */
export function readPage(): Page {
  const text = document.getElementById('toll-data')?.textContent ?? '';
  return JSON.parse(text) as Page;
}

/** Runs that were analysed, with their results. */
export function analysed(page: Page): { run: Run; result: Result; index: number }[] {
  return page.runs.flatMap((run, index) => (run.result ? [{ run, result: run.result, index }] : []));
}

/** Arm names over all runs, in the order in which plans name them. */
export function armNames(page: Page): string[] {
  return [...new Set(analysed(page).flatMap(({ result }) => result.arms.map(arm => arm.name)))];
}

/** Is anything to be caught by any arm? Without a plan there is no saying that it is not. */
export function catches(page: Page): boolean {
  return page.runs.some(run => run.plan?.arms.some(arm => arm.artefact !== null) ?? true);
}

/** What the runs of this page say of an outcome; the first that knows it speaks for all. */
export function definition(page: Page, name: string): Definition | undefined {
  for (const { result } of analysed(page)) {
    const found = result.definitions.find(d => d.name === name);
    if (found) return found;
  }
  return undefined;
}

/** The outcome that verdicts on an arm are drawn from. */
export const judgedBy = (result: Result, arm: Arm): string => arm.judged_by ?? result.primary;
