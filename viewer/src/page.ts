// Made from crates/lab/report/src/page.rs: `make viewer` writes it anew.

import type * as record from './record';

/**
 * As the run holds it, but for a command as one line, and a seed that a browser would round as text.
 */
export type Shown<T> = Omit<T, 'command' | 'seed'> & { command: string; seed: number | string };

/**
 * All data that `page.html` draws from.
 */
export type Page = { toll_version: string, runs: Array<PageRun>, 
/**
 * Overlay of runs with the same question on different platforms.
 */
overlay: record.Overlay | null, 
/**
 * Profiles of captures: those that the runs sent, or those that the page is about.
 */
captures: Array<Captures>, };

export type PageRun = { 
/**
 * Name in legends, unique on the page.
 */
name: string, directory: string, missing: Array<Missing>, plan: Shown<record.Plan>, result: Shown<record.RunResult>, 
/**
 * By arm: smallest and largest captured share of queries in a window.
 */
captured: { [key in string]: Captured }, timeline: Timeline, };

/**
 * A part of the run that cannot be shown, and the reason.
 */
export type Missing = { part: string, why: string, };

export type Captured = { low: number, high: number, windows: number, };

/**
 * Captures that belong together.
 */
export type Captures = { 
/**
 * Title of the group. Empty if there is only one.
 */
title: string, facts: Array<string>, charts: record.Chart[], };

export type Timeline = { 
/**
 * CLOCK_MONOTONIC of time zero, in us; all other times are milliseconds after it.
 */
begin_mono_us: number, 
/**
 * Unix time of time zero, in us. Absent if no trial line has it.
 */
begin_wall_us: number | null, end_ms: number, spans: Array<Span>, 
/**
 * Time axes that series share: milliseconds since the previous point, the first since time zero.
 */
times: Array<Array<number>>, panels: Array<Panel>, 
/**
 * True if some series are reduced to their lows and highs.
 */
thinned: boolean, };

/**
 * One trial, from switching on to switched off. Times are absent if the run ended before them.
 */
export type Span = { trial: number, round: number, arm: string, start_ms: number, window_begin_ms: number | null, window_end_ms: number | null, stop_ms: number | null, failed: boolean, notes: Array<string>, };

export type Panel = { id: string, title: string, unit: string, log: boolean, 
/**
 * Series with different units: only one is shown at a time.
 */
one_at_a_time: boolean, series: Array<Series>, };

export type Series = { name: string, 
/**
 * Not drawn until selected.
 */
hidden: boolean, 
/**
 * Index into [`Timeline::times`].
 */
t: number, 
/**
 * A value is its integer times this.
 */
scale: number, v: Array<number | null>, };
