// Creation of page elements and their text.
//
// Text only: nothing here, or anywhere in this page, parses a string as markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | null | undefined>;

/** An element; attributes that begin with `on` are listeners, `false` and `null` are left out. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

export interface Table {
  head: string[];
  rows: (string | number | null)[][];
  /** Columns, from 0, that hold words; all others are set as numbers. */
  words?: number[];
}

export function tableElement(table: Table, caption: string): HTMLElement {
  const words = new Set(table.words ?? [0]);
  const cell = (value: string | number | null, at: number) => {
    const text = value === null ? '–' : String(value);
    if (at === 0) return el('th', { scope: 'row' }, text);
    return el('td', { class: words.has(at) ? null : 'number' }, text);
  };
  const head = table.head.map((text, at) =>
    el('th', { scope: 'col', class: words.has(at) ? null : 'number' }, text),
  );
  return el(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    el(
      'table',
      {},
      el('caption', { class: 'unseen' }, caption),
      el('thead', {}, el('tr', {}, ...head)),
      el('tbody', {}, ...table.rows.map(row => el('tr', {}, ...row.map(cell)))),
    ),
  );
}

/** As a spreadsheet reads it; a cell that would be taken for a formula begins with an apostrophe. */
export function csv(table: Table): string {
  const cell = (value: string | number | null) => {
    if (value === null) return '';
    if (typeof value === 'number') return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [table.head, ...table.rows].map(row => row.map(cell).join(',')).join('\r\n') + '\r\n';
}

/** A name that can stand in a link. */
export function slug(text: string): string {
  return (
    text
      .toLowerCase()
      .replaceAll(/[^a-z0-9]+/g, '-')
      .replaceAll(/^-|-$/g, '') || 'x'
  );
}

export interface Choice {
  label: string;
  title?: string;
  on: boolean;
  /** Which of the page's series colours, from 0, stands for it. */
  colour?: number;
}

/** Buttons that switch something on or off; with `single`, exactly one is on. */
export function choices(
  label: string,
  items: Choice[],
  single: boolean,
  changed: (on: boolean[]) => void,
): HTMLElement {
  const state = items.map(item => item.on);
  const buttons = items.map((item, at) => {
    const swatch =
      item.colour === undefined
        ? null
        : el('span', { class: `swatch s${(item.colour % 7) + 1}`, 'aria-hidden': 'true' });
    return el(
      'button',
      {
        type: 'button',
        class: 'chip',
        title: item.title,
        'aria-pressed': String(item.on),
        onclick: () => {
          if (single) state.fill(false);
          state[at] = single ? true : !state[at];
          buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(state[i])));
          changed([...state]);
        },
      },
      swatch,
      item.label,
    );
  });
  return el(
    'div',
    { class: 'choices', role: 'group', 'aria-label': label },
    el('span', { class: 'choices-label', 'aria-hidden': 'true' }, label),
    ...buttons,
  );
}
