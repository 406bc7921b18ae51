// Number formatting: digits and units.

import type { Definition, Outcome, Verdict } from './data';

const MINUS = '\u2212';
const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** Three significant digits or so; whole numbers from 100 up. */
export function num(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  const text =
    size === 0
      ? '0'
      : size >= 100
        ? grouped.format(size)
        : size >= 10
          ? size.toFixed(1)
          : size >= 1
            ? size.toFixed(2)
            : size >= 0.001
              ? trimmed(size.toPrecision(2))
              : size.toExponential(1);
  return value < 0 ? MINUS + text : text;
}

function trimmed(text: string): string {
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** A number that somebody chose: as short as it was written. */
export function plain(value: number): string {
  return String(Number(value.toPrecision(6))).replace('-', MINUS);
}

/** A count, never shortened. */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : grouped.format(value);
}

/** A change against the baseline, always with its sign. */
export function signedPct(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  const text = size >= 100 ? grouped.format(size) : size.toFixed(1);
  if (Number(text) === 0) return '0.0%';
  return `${value < 0 ? MINUS : '+'}${text}%`;
}

export function interval(range: readonly [number, number] | null | undefined): string {
  return range ? `${signedPct(range[0])} to ${signedPct(range[1])}` : 'no interval';
}

/** A share of one, as percent, and never "100%" where something is missing. */
export function share(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const pct = 100 * value;
  if (pct < 100 && pct > 99.9) return `${(Math.floor(pct * 1000) / 1000).toFixed(3)}%`;
  return `${pct >= 10 ? pct.toFixed(1) : num(pct)}%`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (Math.abs(value) >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at === 0 ? grouped.format(value) : num(value)} ${units[at]}`;
}

export function micros(us: number | null | undefined): string {
  if (us === null || us === undefined || !Number.isFinite(us)) return '–';
  if (us >= 1e6) return `${num(us / 1e6)} s`;
  return us >= 1000 ? `${num(us / 1000)} ms` : `${num(us)} µs`;
}

export function seconds(s: number): string {
  if (s < 120) return `${plain(Number(s.toPrecision(3)))} s`;
  const minutes = Math.round(s / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** An outcome's value in the unit that people read. */
export function inUnit(value: number, unit: string): string {
  if (unit === 'us') return micros(value);
  if (unit === 'bytes') return bytes(value);
  if (unit === 'bytes/s') return `${bytes(value)}/s`;
  if (unit === '%') return `${num(value)}%`;
  return `${num(value)} ${unit}`;
}

/** Time since the run began: `1:23.4`, `1:02:03`. */
export function clock(ms: number, fraction = false): string {
  const s = ms / 1000;
  const h = Math.floor(s / 3600);
  const m = Math.floor((s % 3600) / 60);
  const rest = s % 60;
  const seconds = fraction ? rest.toFixed(1).padStart(4, '0') : String(Math.floor(rest)).padStart(2, '0');
  return h > 0 ? `${h}:${String(m).padStart(2, '0')}:${seconds}` : `${m}:${seconds}`;
}

export function date(wallUs: number): string {
  return `${new Date(wallUs / 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

/** Local time of this browser, as `2026-11-27 15:04:05`. */
export function localTime(ms: number): string {
  // Sweden's is ISO 8601's.
  return new Date(ms).toLocaleString('sv-SE');
}

/** With a capital first letter, for a heading; `p99` stays as it is. */
export function capitalised(text: string): string {
  if (/^[a-z]\d/.test(text)) return text;
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** An outcome in words; one that no run defines goes by its own name. */
export function outcomeTitle(defined: Definition | undefined, name: string): string {
  return capitalised(defined?.title ?? name.replaceAll('_', ' '));
}

/** A difference in its own unit, always with its sign. */
export function signed(value: number, unit: string): string {
  // Between two shares: percent would be taken for a share of the share.
  const size = unit === '%' ? `${num(Math.abs(value))} points` : inUnit(Math.abs(value), unit);
  return `${value < 0 && /[1-9]/.test(size) ? MINUS : '+'}${size}`;
}

type Estimated = Pick<Outcome, 'toll_pct' | 'ci95_pct' | 'effect' | 'ci95'>;

const sized = (verdict: Verdict | undefined, unit: string) =>
  verdict === 'not-compared' ? (v: number) => inUnit(v, unit) : (v: number) => signed(v, unit);

/** What was estimated: in percent for ratios, else in the outcome's unit. */
export function estimate(of: Estimated, unit: string, verdict?: Verdict): string {
  const effect = of.effect ?? null;
  return effect === null ? signedPct(of.toll_pct) : sized(verdict, unit)(effect);
}

/** Its interval, in the same measure. */
export function range(of: Estimated, unit: string, verdict?: Verdict): string {
  if ((of.effect ?? null) === null) return interval(of.ci95_pct);
  const text = sized(verdict, unit);
  return of.ci95 ? `${text(of.ci95[0])} to ${text(of.ci95[1])}` : 'no interval';
}

const VERDICTS: Record<string, string> = {
  baseline: 'baseline',
  costly: 'worse',
  cheaper: 'better',
  'no-effect': 'equivalent (within the margin)',
  unclear: 'inconclusive: the interval includes 0',
  'no-interval': 'too few rounds for an interval',
  'not-compared': 'not compared',
};

export function verdictText(verdict: string): string {
  return VERDICTS[verdict] ?? verdict;
}
