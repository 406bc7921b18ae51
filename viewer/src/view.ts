// Visible time range shared by all timelines of a run.
//
// One view for each run: scrolling one chart scrolls the others.

import type { Chart } from './chart';
import type { Run, Span, Stall } from './data';
import type { Figure } from './figure';

/** Shortest stretch: ten bins. */
const SHORTEST_MS = 1_000;

export class View {
  readonly end: number;
  readonly arms: string[];
  readonly baseline: string | null;
  readonly stalls: { stall: Stall; from: number; to: number }[];
  from = 0;
  to: number;
  /** The one arm whose stretches are shaded; all of them where there is none. */
  emphasised: string | null = null;
  onmove: () => void = () => undefined;

  private figures: Figure[] = [];
  private readonly charts = new Set<Chart>();
  private moving = false;

  constructor(readonly run: Run) {
    const timeline = run.timeline;
    this.end = Math.max(timeline.end_ms, SHORTEST_MS);
    this.to = this.end;
    const seen = new Set(timeline.spans.map(span => span.arm));
    const planned = run.result.arms.map(arm => arm.name).filter(name => seen.has(name));
    this.arms = [...new Set([...planned, ...seen])];
    this.baseline = run.result.baseline;
    const ms = (us: number) => (us - timeline.begin_mono_us) / 1000;
    this.stalls = run.result.stalls
      .map(stall => ({ stall, from: ms(stall.begin_mono_us), to: ms(stall.end_mono_us) }))
      .sort((a, b) => a.from - b.from);
  }

  follow(figures: Figure[]): void {
    this.figures = figures;
  }

  redraw(): void {
    for (const figure of this.figures) figure.draw();
  }

  show(from: number, to: number): void {
    const length = Math.min(Math.max(to - from, SHORTEST_MS), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length);
    this.to = this.from + length;
    this.moving = true;
    for (const chart of this.charts) {
      chart.dispatchAction({ type: 'dataZoom', startValue: this.from, endValue: this.to });
    }
    this.moving = false;
    this.moved();
  }

  showAll(): void {
    this.show(0, this.end);
  }

  /** By a factor, about the middle. */
  zoom(factor: number): void {
    const middle = (this.from + this.to) / 2;
    const half = Math.max((this.to - this.from) * factor, SHORTEST_MS) / 2;
    this.show(middle - half, middle + half);
  }

  /** By a part of what is shown. */
  pan(part: number): void {
    const by = (this.to - this.from) * part;
    this.show(this.from + by, this.to + by);
  }

  pressed(key: string): boolean {
    if (key === '+' || key === '=') this.zoom(0.5);
    else if (key === '-') this.zoom(2);
    else if (key === 'ArrowLeft') this.pan(-0.25);
    else if (key === 'ArrowRight') this.pan(0.25);
    else if (key === '0' || key === 'Home') this.showAll();
    else return false;
    return true;
  }

  /** Has a new chart lead and follow the others. */
  join(chart: Chart): void {
    for (const old of this.charts) if (old.isDisposed()) this.charts.delete(old);
    this.charts.add(chart);
    chart.on('datazoom', () => {
      if (this.moving) return;
      const zoom = (chart.getOption() as { dataZoom?: { startValue: number; endValue: number }[] })
        .dataZoom?.[0];
      if (!zoom) return;
      this.moving = true;
      this.from = zoom.startValue;
      this.to = zoom.endValue;
      for (const other of this.charts) {
        if (other !== chart) {
          other.dispatchAction({ type: 'dataZoom', startValue: this.from, endValue: this.to });
        }
      }
      this.moving = false;
      this.moved();
    });
  }

  /** The trial that was going on at a moment. */
  at(ms: number): Span | undefined {
    return this.run.timeline.spans.findLast(span => span.start_ms <= ms && ms <= (span.stop_ms ?? this.end));
  }

  private moved(): void {
    this.onmove();
    for (const figure of this.figures) figure.refreshTable();
  }
}
