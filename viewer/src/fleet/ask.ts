// Questions to `toll-fleet serve`, and the rows that it answers with.

/** A cluster, and the time that the tables have of it. */
export interface Extent {
  cluster: string;
  hosts: number;
  first_us: number;
  last_us: number;
}

/** Queries of a class under way at once, on average over a step. */
export interface LoadStep {
  begin_us: number;
  step_us: number;
  /** Empty: all classes that are not shown apart. */
  class: string;
  summary: string;
  active: number;
}

export interface ClassRow {
  class: string;
  summary: string;
  n: number;
  time_s: number;
  time_percent: number;
  p50_ms: number;
  p99_ms: number;
  max_ms: number;
  errors: number;
  hosts: number;
  fingerprint: string;
}

export interface ClassOnHost {
  host: string;
  cluster: string;
  n: number;
  time_s: number;
  mean_ms: number;
  p50_ms: number;
  p99_ms: number;
  max_ms: number;
  errors: number;
}

export interface HostRow {
  host: string;
  cluster: string;
  n: number;
  time_s: number;
  errors: number;
  ratio: number | null;
  most_s: number | null;
  most: string | null;
  summary: string;
}

export interface CoverageRow {
  host: string;
  cluster: string;
  source: string;
  first: string;
  last: string;
  seen_s: number;
  commands: number;
  tainted: number;
  lost: number;
  sampled_percent: number;
}

/** What is shown: a stretch of time, Unix time in microseconds, and a cluster; `null`: all. */
export interface Shown {
  sinceUs: number;
  untilUs: number;
  cluster: string | null;
}

/** Rows of an answer. */
export async function ask<Row>(question: string, shown?: Shown, signal?: AbortSignal): Promise<Row[]> {
  const asked = new URLSearchParams();
  if (shown) {
    asked.set('since_us', String(Math.floor(shown.sinceUs)));
    asked.set('until_us', String(Math.ceil(shown.untilUs)));
    if (shown.cluster !== null) asked.set('cluster', shown.cluster);
  }
  const answer = await fetch(`/api/${question}?${asked}`, signal ? { signal } : {});
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as Row[];
}
