// Figure around each chart: title, text alternative, data table, copies, and a link.
//
// Never decides what is drawn.

import { base, init, type Chart, type Option } from './chart';
import { csv, el, tableElement, type Table } from './dom';
import { colours, type Colours } from './theme';

export interface Drawing {
  colours: Colours;
  width: number;
}

export interface FigureSpec {
  /** Stable; the link to the chart is `#chart-ID`. */
  id: string;
  title: string;
  /** How to read it, one or two sentences. */
  hint?: string;
  /** What a screen reader says of the chart; the table behind it has the figures. */
  label: () => string;
  height: (width: number) => number;
  option: (drawing: Drawing) => Option;
  /** Everything that is drawn. */
  table: () => Table;
  /** What the table behind the chart shows, where all would be too long. */
  shortTable?: () => Table;
  controls?: HTMLElement[];
  /** After the chart is made, once. */
  made?: (chart: Chart, figure: Figure) => void;
  /** Keys that the chart answers to, and what they do. */
  keys?: { help: string; pressed: (key: string) => boolean };
}

/** In the order of the page; each is drawn by `drawAll`. */
export const figures: Figure[] = [];

export class Figure {
  readonly element: HTMLElement;
  private readonly canvas: HTMLElement;
  private readonly said = el('span', { class: 'said', role: 'status' });
  private readonly details: HTMLDetailsElement;
  private chart: Chart | null = null;
  private width = 0;
  private sharpness = 0;

  constructor(private readonly spec: FigureSpec) {
    const id = `chart-${spec.id}`;
    this.canvas = el('div', { class: 'canvas', role: 'img', tabindex: 0, 'aria-label': this.label() });
    this.canvas.style.height = `${spec.height(900)}px`;
    this.details = el('details', { class: 'data' }, el('summary', {}, 'Data as a table'));
    this.details.addEventListener('toggle', () => this.refreshTable());
    this.element = el(
      'figure',
      { id, 'aria-labelledby': `${id}-title` },
      el(
        'figcaption',
        {},
        el('h3', { id: `${id}-title` }, spec.title),
        spec.hint ? el('p', { class: 'hint' }, spec.hint) : null,
      ),
      el(
        'div',
        { class: 'tools' },
        this.said,
        el('button', { type: 'button', onclick: () => void this.copyCsv() }, 'Copy CSV'),
        el('button', { type: 'button', onclick: () => void this.copyPng() }, 'Copy PNG'),
        el('a', { href: `#${id}`, 'aria-label': `Link to ${spec.title}` }, 'Link'),
      ),
      ...(spec.controls ?? []),
      this.canvas,
      this.details,
    );
    const keys = spec.keys;
    if (keys) {
      this.canvas.addEventListener('keydown', event => {
        if (!event.ctrlKey && !event.metaKey && !event.altKey && keys.pressed(event.key))
          event.preventDefault();
      });
    }
    figures.push(this);
  }

  /** Draws, or draws anew after a change of size, colours or choices. */
  draw(width = this.canvas.clientWidth, sharpness = window.devicePixelRatio): void {
    if (width === 0) return;
    this.width = width;
    if (this.sharpness !== sharpness) {
      this.chart?.dispose();
      this.chart = null;
      this.sharpness = sharpness;
    }
    const height = this.spec.height(width);
    this.canvas.style.height = `${height}px`;
    if (this.chart === null) {
      this.chart = init(this.canvas, null, {
        renderer: 'canvas',
        width,
        height,
        devicePixelRatio: sharpness,
      });
      // The library names the canvas for itself; the figure has said it better.
      this.canvas.setAttribute('role', 'img');
      this.spec.made?.(this.chart, this);
    } else if (this.chart.getWidth() !== width || this.chart.getHeight() !== height) {
      this.chart.resize({ width, height });
    }
    const c = colours();
    this.chart.setOption({ ...base(c), ...this.spec.option({ colours: c, width }) }, { notMerge: true });
    this.canvas.setAttribute('aria-label', this.label());
  }

  /** Draws now what the library would draw with the next frame. */
  flush(): void {
    this.chart?.getZr().flush();
  }

  resized(): void {
    if (this.chart !== null && this.canvas.clientWidth !== this.width) this.draw();
  }

  get drawn(): boolean {
    return this.chart !== null;
  }

  refreshTable(): void {
    this.details.querySelector('.scroll')?.remove();
    if (!this.details.open) return;
    const table = (this.spec.shortTable ?? this.spec.table)();
    this.details.append(tableElement(table, `${this.spec.title}: data`));
  }

  private label(): string {
    return [`${this.spec.title}.`, this.spec.label(), this.spec.keys?.help].filter(Boolean).join(' ');
  }

  private async copyCsv(): Promise<void> {
    const text = csv(this.spec.table());
    try {
      await navigator.clipboard.writeText(text);
      this.say('CSV copied');
    } catch {
      this.save(new Blob([text], { type: 'text/csv' }), 'csv');
    }
  }

  private async copyPng(): Promise<void> {
    if (this.chart === null) this.draw();
    if (this.chart === null) return;
    const url = this.chart.getDataURL({ type: 'png', pixelRatio: 2, backgroundColor: colours().ground });
    const bytes = Uint8Array.from(atob(url.slice(url.indexOf(',') + 1)), c => c.charCodeAt(0));
    const blob = new Blob([bytes], { type: 'image/png' });
    try {
      await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })]);
      this.say('PNG copied');
    } catch {
      this.save(blob, 'png');
    }
  }

  /** Where the browser keeps its clipboard to itself, a file is the next best thing. */
  private save(blob: Blob, ending: string): void {
    const url = URL.createObjectURL(blob);
    el('a', { href: url, download: `toll-${this.spec.id}.${ending}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
    this.say(`Saved as toll-${this.spec.id}.${ending}`);
  }

  private say(text: string): void {
    this.said.textContent = text;
    setTimeout(() => (this.said.textContent = ''), 4_000);
  }
}
