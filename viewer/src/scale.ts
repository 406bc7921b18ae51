// Axis scales: ends, ticks, and space for labels.

/** 1, 2 and 5 times powers of ten: the steps that people read on a logarithmic axis. */
const STEPS = [1, 2, 5];

/** The round value at or below `v`, which is above zero. */
export function floorNice(v: number): number {
  const decade = 10 ** Math.floor(Math.log10(v) + 1e-9);
  return clean(Math.max(...STEPS.filter(step => step * decade <= v * (1 + 1e-9)), 1) * decade);
}

/** The round value at or above `v`, which is above zero. */
export function ceilNice(v: number): number {
  const decade = 10 ** Math.floor(Math.log10(v) + 1e-9);
  const step = STEPS.find(step => step * decade >= v * (1 - 1e-9)) ?? 10;
  return clean(step * decade);
}

/** The values to name on a logarithmic axis: whole decades only, where there are many. */
export function logTicks(min: number, max: number): number[] {
  const ticks: number[] = [];
  const steps = max / min > 2_000 ? [1] : STEPS;
  for (let exponent = Math.floor(Math.log10(min)); exponent <= Math.ceil(Math.log10(max)); exponent++) {
    for (const step of steps) {
      const value = clean(step * 10 ** exponent);
      if (value >= min * 0.999 && value <= max * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

/** A logarithmic axis that holds these values, in the library's terms. */
export function logAxis(values: Iterable<number>) {
  let [low, high] = [Infinity, 0];
  for (const v of values) {
    if (v > 0 && v < low) low = v;
    if (v > high) high = v;
  }
  if (low > high) return { type: 'log' };
  const [min, max] = [floorNice(low), ceilNice(Math.max(high, low * 1.5))];
  return { type: 'log', min, max, customValues: logTicks(min, max) };
}

function clean(v: number): number {
  return Number(v.toPrecision(12));
}

/** Places as near as can be to those wanted, `gap` apart, between `low` and `high`; in the order given. */
export function spread(wanted: number[], gap: number, low: number, high: number): number[] {
  const order = wanted.map((_, at) => at).sort((a, b) => (wanted[a] ?? 0) - (wanted[b] ?? 0));
  const placed = [...wanted];
  let next = low;
  for (const at of order) {
    placed[at] = Math.max(placed[at] ?? 0, next);
    next = (placed[at] ?? 0) + gap;
  }
  let last = high;
  for (const at of order.reverse()) {
    placed[at] = Math.min(placed[at] ?? 0, last);
    last = (placed[at] ?? 0) - gap;
  }
  return placed;
}
