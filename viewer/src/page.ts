// Made from crates/lab/report/src/page.rs: `make viewer` writes it anew.

import type * as record from './record';

/**
 * As the run holds it, but for a command as one line, and a seed that a browser would round as text.
 */
export type Shown<T> = Omit<T, 'command' | 'seed'> & { command: string; seed: number | string };

/**
 * Everything that `page.html` draws from.
 */
export type Page = { toll_version: string, runs: Array<PageRun>, 
/**
 * Of runs that ask the same on different platforms.
 */
overlay: record.Overlay | null, 
/**
 * What captures are made of: those that the runs sent, or those that the page is about.
 */
captures: Array<Captures>, };

export type PageRun = { 
/**
 * What legends call it: unlike any other on the page.
 */
name: string, directory: string, missing: Array<Missing>, plan: Shown<record.Plan>, result: Shown<record.RunResult>, 
/**
 * By arm: share of queries captured in the window that caught least and in the one that caught most.
 */
captured: { [key in string]: Captured }, timeline: Timeline, };

/**
 * A part of the run that cannot be shown, and why.
 */
export type Missing = { part: string, why: string, };

export type Captured = { low: number, high: number, windows: number, };

/**
 * Captures that belong together.
 */
export type Captures = { 
/**
 * Whose they are; empty: there are no others.
 */
title: string, facts: Array<string>, charts: record.Chart[], };

export type Timeline = { 
/**
 * CLOCK_MONOTONIC of time zero, in us; all other times are milliseconds after it.
 */
begin_mono_us: number, 
/**
 * Unix time of time zero, in us; absent where no trial line gives it.
 */
begin_wall_us: number | null, end_ms: number, spans: Array<Span>, 
/**
 * Time axes that series share: milliseconds since the point before, the first since time zero.
 */
times: Array<Array<number>>, panels: Array<Panel>, 
/**
 * Some series are shown by their lows and highs.
 */
thinned: boolean, };

/**
 * One trial, from switching on to switched off. Times are absent where the run ended before them.
 */
export type Span = { trial: number, round: number, arm: string, start_ms: number, window_begin_ms: number | null, window_end_ms: number | null, stop_ms: number | null, failed: boolean, notes: Array<string>, };

export type Panel = { id: string, title: string, unit: string, log: boolean, 
/**
 * Series whose units differ: only one is shown at a time.
 */
one_at_a_time: boolean, series: Array<Series>, };

export type Series = { name: string, 
/**
 * Not drawn until asked for.
 */
hidden: boolean, 
/**
 * Which of [`Timeline::times`].
 */
t: number, 
/**
 * A value is its integer times this.
 */
scale: number, v: Array<number | null>, };
