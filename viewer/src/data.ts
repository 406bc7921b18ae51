// What does toll put into the page?
//
// What the run directory holds is described by `record.ts`, which is made from `crates/base/record`; what
// `crates/lab/report/src/page.rs` adds is mirrored here. Never fetches: the data stand in the file.

import type * as record from './record';

export interface Page {
  toll_version: string;
  runs: Run[];
  overlay: record.Overlay | null;
  captures: { title: string; facts: string[]; charts: record.Chart[] }[];
}

export interface Run {
  name: string;
  directory: string;
  missing: { part: string; why: string }[];
  plan: Plan;
  result: Result;
  captured: Record<string, { low: number; high: number; windows: number }>;
  timeline: Timeline;
}

/** As the run holds it, but for what the page writes otherwise: a command as one line, a seed that a browser would round as text. */
type Shown<T> = Omit<T, 'command' | 'seed'> & { command: string; seed: number | string };

export type Plan = Shown<record.Plan>;
export type Result = Shown<record.RunResult>;
export type Arm = record.ArmResult;
export type Artefact = record.ArtefactResult;
export type Stall = record.StallSpan;
export type Interval = [number, number];
export type { Axis, Chart, Definition, Host, Outcome, Role, Server, Verdict, Workload } from './record';

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

/** What was found in each run. */
export function analysed(page: Page): { run: Run; result: Result; index: number }[] {
  return page.runs.map((run, index) => ({ run, result: run.result, index }));
}

/** Arm names over all runs, in the order in which plans name them. */
export function armNames(page: Page): string[] {
  return [...new Set(analysed(page).flatMap(({ result }) => result.arms.map(arm => arm.name)))];
}

/** Is anything to be caught by any arm? */
export function catches(page: Page): boolean {
  return page.runs.some(run => run.plan.arms.some(arm => arm.artefact !== null));
}

/** Is there a server, whose queries take time and may be caught? */
export function serves(page: Page): boolean {
  return page.runs.some(run => Boolean(run.result.server));
}

/** What the runs of this page say of an outcome; the first that knows it speaks for all. */
export function definition(page: Page, name: string): record.Definition | undefined {
  for (const { result } of analysed(page)) {
    const found = result.definitions.find(d => d.name === name);
    if (found) return found;
  }
  return undefined;
}

/** The outcome that verdicts on an arm are drawn from. */
export const judgedBy = (result: Result, arm: Arm): string => arm.judged_by ?? result.primary;
