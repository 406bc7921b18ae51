// Pareto section: trade-offs between variants, and the variants that no other dominates.
//
// Draws the result of the analysis. Never decides which variant dominates which.

import { axisLook, tip, tipLook } from '../chart';
import { analysed, definition, type Page, type Result } from '../data';
import { choices, el, type Table } from '../dom';
import { Figure } from '../figure';
import { inUnit, outcomeTitle } from '../format';
import { faded, type Colours } from '../theme';

type Found = NonNullable<Result['pareto']>;
type Ends = Found['arms'][number]['ci95'][number];

interface Point {
  name: string;
  title: string;
  runName: string;
  beatenBy: string | null;
  advised: boolean;
  values: number[];
  ci: Ends[];
}

export function paretoSection(page: Page): HTMLElement | null {
  const found = analysed(page).flatMap(({ run, result }) =>
    result.pareto ? [{ run, result, pareto: result.pareto }] : [],
  );
  const [first] = found;
  if (!first) return null;
  const names = first.pareto.outcomes;
  // Runs that trade something else have no place in the same picture.
  const alike = found.filter(({ pareto }) => pareto.outcomes.join() === names.join());
  const several = alike.length > 1;
  const points: Point[] = alike.flatMap(({ run, result, pareto }) =>
    pareto.arms.map(arm => ({
      name: arm.name,
      title: result.arms.find(a => a.name === arm.name)?.title ?? '',
      runName: run.name,
      beatenBy: arm.beaten_by,
      advised: pareto.advised === arm.name,
      values: arm.values,
      ci: arm.ci95,
    })),
  );
  const titles = names.map(name => outcomeTitle(definition(page, name), name));
  const units = names.map(name => definition(page, name)?.unit ?? '');
  const shown = (at: number, value: number) => inUnit(value, units[at] ?? '');
  const axes = { x: 0, y: 1 };
  const axis = (label: string, which: 'x' | 'y') =>
    choices(
      label,
      titles.map((title, at) => ({ label: title, on: at === axes[which] })),
      true,
      on => {
        axes[which] = Math.max(0, on.indexOf(true));
        figure.draw();
      },
    );
  const table = (): Table => ({
    head: [
      'variant',
      'description',
      ...(several ? ['run'] : []),
      ...titles.flatMap((title, at) => [`${title}, ${units[at] ?? ''}`, 'low', 'high']),
      'dominated by',
    ],
    rows: points.map(p => [
      p.name,
      p.title,
      ...(several ? [p.runName] : []),
      ...p.values.flatMap((value, at) => [value, p.ci[at]?.[0] ?? null, p.ci[at]?.[1] ?? null]),
      p.beatenBy ?? '',
    ]),
    words: several ? [0, 1, 2] : [0, 1],
  });
  const shortTable = (): Table => ({
    head: ['variant', 'description', ...(several ? ['run'] : []), ...titles, 'dominated by'],
    rows: points.map(p => [
      p.advised ? `${p.name} (advised)` : p.name,
      p.title,
      ...(several ? [p.runName] : []),
      ...p.values.map((value, at) => shown(at, value)),
      p.beatenBy ?? 'none',
    ]),
    words: several ? [0, 1, 2] : [0, 1],
  });
  const figure: Figure = new Figure({
    id: 'pareto',
    title: 'What arms trade',
    hint: 'Full marks are arms that no other beats: none is better in one of these outcomes, beyond the interval of their difference, and worse in none. Bars are 95% intervals of the means.',
    label: () =>
      `Scatter chart of ${points.length} arms, ${titles[axes.y] ?? ''} against ${titles[axes.x] ?? ''}. Not beaten: ${
        points
          .filter(p => p.beatenBy === null)
          .map(p => p.name)
          .join(', ') || 'none'
      }.`,
    height: width => (width < 560 ? 360 : 420),
    controls: [axis('Across', 'x'), axis('Up', 'y')],
    table,
    shortTable,
    option: ({ colours: c }) => option(points, axes, { titles, units, shown, several }, c),
  });
  const section = el('section', { id: 'pareto' }, el('h2', {}, 'What arms trade against each other'));
  for (const { run, pareto } of alike) {
    section.append(el('p', {}, `${several ? `${run.name}: ` : ''}${pareto.text}`));
  }
  section.append(figure.element);
  return section;
}

interface Words {
  titles: string[];
  units: string[];
  shown: (at: number, value: number) => string;
  several: boolean;
}

interface Api {
  value: (at: number) => number;
  coord: (point: number[]) => [number, number];
}

function option(points: Point[], { x, y }: { x: number; y: number }, words: Words, c: Colours) {
  const at = (p: Point, outcome: number) => p.values[outcome] ?? 0;
  const scaled = (name: string) => ({
    ...axisLook(c),
    type: 'value',
    scale: true,
    name,
    axisLabel: { ...axisLook(c).axisLabel, hideOverlap: true },
  });
  const label = (outcome: number) => (v: number) => words.shown(outcome, v);
  const across = scaled(words.titles[x] ?? '');
  const up = scaled(words.titles[y] ?? '');
  const colour = (p: Point) => (p.advised ? c.cheaper : p.beatenBy === null ? c.neutral : c.soft);
  const data = points.map((p, i) => ({
    value: [at(p, x), at(p, y), ...(p.ci[x] ?? [null, null]), ...(p.ci[y] ?? [null, null]), i],
    itemStyle: {
      color: p.beatenBy === null ? colour(p) : c.ground,
      borderColor: colour(p),
      borderWidth: 2,
    },
    label: { show: true, formatter: p.name, position: 'top', color: c.text, fontSize: 12 },
  }));
  return {
    grid: { left: 78, right: 40, top: 40, bottom: 52 },
    xAxis: {
      ...across,
      nameLocation: 'middle',
      nameGap: 30,
      axisLabel: { ...across.axisLabel, formatter: label(x) },
    },
    yAxis: {
      ...up,
      nameTextStyle: { color: c.soft, align: 'left', padding: [0, 0, 0, -66] },
      axisLabel: { ...up.axisLabel, formatter: label(y) },
    },
    tooltip: {
      trigger: 'item',
      ...tipLook(c),
      formatter: (hit: { value: number[] }) => {
        const p = points[hit.value[6] ?? 0];
        if (!p) return '';
        return tip(`${p.name}: ${p.title}`, [
          ...(words.several ? ([['run', p.runName]] as [string, string][]) : []),
          ...words.titles.map((title, i) => [title, words.shown(i, at(p, i))] as [string, string]),
          ['dominated by', p.beatenBy ?? 'none'],
        ]);
      },
    },
    series: [
      {
        type: 'custom',
        silent: true,
        z: 1,
        data,
        renderItem: (_: unknown, api: Api) => cross(api, faded(c.soft, 0.7)),
      },
      { type: 'scatter', z: 3, symbolSize: 12, data, labelLayout: { moveOverlap: 'shiftY' } },
    ],
  };
}

function cross(api: Api, colour: string) {
  const [x, y] = [api.value(0), api.value(1)];
  const line = (from: [number, number], to: [number, number]) => ({
    type: 'line',
    shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] },
    style: { stroke: colour, lineWidth: 1.5 },
  });
  const children = [];
  const [left, right, low, high] = [api.value(2), api.value(3), api.value(4), api.value(5)];
  if (Number.isFinite(left) && Number.isFinite(right)) {
    children.push(line(api.coord([left, y]), api.coord([right, y])));
  }
  if (Number.isFinite(low) && Number.isFinite(high)) {
    children.push(line(api.coord([x, low]), api.coord([x, high])));
  }
  return { type: 'group', children };
}
