// Data of the page, and lookups shared by several sections.
//
// Their types are made from the Rust sources: `record.ts` of what a run directory holds, `page.ts` of what
// `toll report` adds. Never fetches: the file contains the data.

import type { Page, PageRun as Run } from './page';
import type * as record from './record';

export type { Page, PageRun as Run, Panel, Span } from './page';
export type { Axis, Chart, Definition, Host, Outcome, Verdict } from './record';
export type Result = Run['result'];
export type Arm = record.ArmResult;
export type Stall = record.StallSpan;
export type Interval = [number, number];

/** The data block of this file: JSON, gzip, base64. Rejects where it holds none: the template was opened, not a report. */
export async function readPage(): Promise<Page> {
  const text = document.getElementById('toll-data')?.textContent ?? '';
  const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const json = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return (await new Response(json).json()) as Page;
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
