// Tables of what a forest plot shows: in short, and with all figures.

import { type Table } from '../dom';
import { estimate, inUnit, range, verdictText } from '../format';
import { type Panel } from './forest';

export function fullTable(panels: Panel[]): Table {
  return {
    head: [
      'metric',
      'variant',
      'run',
      'unit',
      'mean',
      'sd',
      'overhead %',
      'low %',
      'high %',
      'effect',
      'low',
      'high',
      'p',
      'p (adjusted)',
      'verdict',
      'method',
    ],
    rows: panels.flatMap(p =>
      p.rows.map(({ arm, runName, outcome: o }) => [
        p.name,
        arm,
        runName,
        o.unit,
        o.mean,
        o.sd,
        o.toll_pct,
        o.ci95_pct?.[0] ?? null,
        o.ci95_pct?.[1] ?? null,
        o.effect ?? null,
        o.ci95?.[0] ?? null,
        o.ci95?.[1] ?? null,
        o.p,
        o.p_adjusted,
        o.verdict,
        o.method,
      ]),
    ),
    words: [0, 1, 2, 3, 14, 15],
  };
}

export function shortTable(panels: Panel[], several: boolean): Table {
  return {
    head: ['metric', 'variant', ...(several ? ['run'] : []), 'mean', 'overhead', '95% CI', 'verdict'],
    rows: panels.flatMap(p =>
      p.rows.map(({ arm, runName, outcome: o }) => [
        p.title,
        arm,
        ...(several ? [runName] : []),
        inUnit(o.mean, o.unit),
        estimate(o, o.unit, o.verdict),
        range(o, o.unit, o.verdict),
        verdictText(o.verdict),
      ]),
    ),
    words: several ? [0, 1, 2, 6] : [0, 1, 5],
  };
}
