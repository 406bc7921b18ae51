// Table whose rows can be sorted by any column, and opened.

import { el } from '../dom';

export interface Column<Row> {
  title: string;
  hint?: string;
  /** What rows are sorted by. */
  value: (row: Row) => string | number | null;
  text: (row: Row) => string;
}

interface Grid<Row> {
  caption: string;
  columns: Column<Row>[];
  rows: Row[];
  /** What is shown below a row that is opened. */
  open?: (row: Row) => Promise<HTMLElement>;
  /** The rows that are open already. */
  isOpen?: (row: Row) => boolean;
  opened?: (row: Row, isOpen: boolean) => void;
}

const isText = (value: string | number | null) => typeof value === 'string';

export function grid<Row>(of: Grid<Row>): HTMLElement {
  const body = el('tbody');
  const heads: HTMLElement[] = [];
  let sorted = -1;
  let descending = true;

  const compare = (a: string | number | null, b: string | number | null) => {
    if (a === null || b === null) return Number(a !== null) - Number(b !== null);
    return isText(a) || isText(b) ? String(a).localeCompare(String(b)) : a - b;
  };
  const shown = () => {
    const column = of.columns[sorted];
    if (!column) return of.rows;
    const sign = descending ? -1 : 1;
    return [...of.rows].sort((a, b) => sign * compare(column.value(a), column.value(b)));
  };

  const rowElements = (row: Row): HTMLElement[] => {
    const cells = of.columns.map((column, at) => {
      const text = column.text(row);
      if (at > 0) return el('td', { class: isText(column.value(row)) ? null : 'number' }, text);
      return el(
        'th',
        { scope: 'row' },
        of.open ? el('button', { type: 'button', class: 'row' }, text) : text,
      );
    });
    const element = el('tr', {}, ...cells);
    const { open } = of;
    if (!open) return [element];
    const below = el('td', { colspan: of.columns.length });
    const belowRow = el('tr', { class: 'below', hidden: true }, below);
    const button = element.querySelector('button');
    let isShown = false;
    const set = (isOpen: boolean) => {
      isShown = isOpen;
      belowRow.hidden = !isOpen;
      button?.setAttribute('aria-expanded', String(isOpen));
      if (!isOpen || below.hasChildNodes()) return;
      open(row).then(
        found => below.replaceChildren(found),
        (error: unknown) => below.replaceChildren(el('p', { class: 'notice missing' }, String(error))),
      );
    };
    set(of.isOpen?.(row) ?? false);
    button?.addEventListener('click', () => {
      set(!isShown);
      of.opened?.(row, isShown);
    });
    return [element, belowRow];
  };

  const fill = () => {
    body.replaceChildren(...shown().flatMap(rowElements));
    heads.forEach((head, at) => {
      head.setAttribute('aria-sort', at !== sorted ? 'none' : descending ? 'descending' : 'ascending');
    });
  };
  for (const [at, column] of of.columns.entries()) {
    const sort = () => {
      descending = sorted === at ? !descending : true;
      sorted = at;
      fill();
    };
    const first = of.rows[0];
    const isNumber = first !== undefined && !isText(column.value(first));
    heads.push(
      el(
        'th',
        { scope: 'col', class: isNumber ? 'number' : null, title: column.hint },
        el('button', { type: 'button', class: 'sort', onclick: sort }, column.title),
      ),
    );
  }
  fill();
  return el(
    'table',
    {},
    el('caption', { class: 'unseen' }, of.caption),
    el('thead', {}, el('tr', {}, ...heads)),
    body,
  );
}
