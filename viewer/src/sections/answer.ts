// Result section: the question, its answer with the first sentence as the headline, and the checks in short.

import type { Page, Run } from '../data';
import { el } from '../dom';
import { date, num, seconds } from '../format';

export function answerSection(page: Page): HTMLElement {
  const one = page.runs.length === 1;
  const questions = [...new Set(page.runs.map(run => run.result.question))];
  return el(
    'section',
    { id: 'answer', 'aria-label': 'Question and result' },
    ...questions.filter(Boolean).map(question => el('h1', {}, question)),
    ...page.runs.map(run =>
      el(
        'div',
        { class: 'run-answer' },
        one ? null : el('h2', {}, run.name),
        ...answer(run.result.answer),
        facts(run),
        ...run.result.advice.map(text => el('p', { class: 'advice' }, text)),
        missing(run),
      ),
    ),
  );
}

/** The first sentence as the headline, the others below it. */
function answer(text: string): HTMLElement[] {
  const end = text.indexOf('. ');
  const [headline, rest] = end < 0 ? [text, ''] : [text.slice(0, end + 1), text.slice(end + 2)];
  return [el('p', { class: 'answer' }, headline), ...(rest ? [el('p', {}, rest)] : [])];
}

/** `A/A passed`; empty if there was no such check. */
function check(name: string, ok: boolean | null | undefined): string | null {
  if (ok === undefined) return null;
  return `${name} ${ok === null ? 'not conclusive' : ok ? 'passed' : 'failed'}`;
}

function facts(run: Run): HTMLElement {
  const { result } = run;
  const { server } = result;
  const { counted } = result.host;
  const items = [
    result.scenario,
    result.profile ? `profile ${result.profile}` : null,
    server ? `${server.flavour} ${server.version}` : 'no server',
    result.host.label,
    `${result.rounds_done} of ${result.rounds_planned} rounds`,
    counted ? 'instructions counted, not time' : null,
    `windows of ${counted ? `${num(result.window_s)} G instructions` : seconds(result.window_s)}`,
    `took ${seconds(counted ? counted.wall_s : result.duration_s)}`,
    result.mde?.achieved_pct
      ? `minimum detectable effect ${num(result.mde.achieved_pct)}% (80% power)`
      : null,
    check('A/A', result.aa?.ok),
    ...result.controls.map(control => check(control.arm, control.ok)),
    date(result.started_wall_us),
  ];
  return el('ul', { class: 'facts' }, ...items.filter(Boolean).map(item => el('li', {}, item)));
}

/** What this run lacks, said where nobody can overlook it. */
function missing(run: Run): HTMLElement | null {
  const cut = !run.result.complete;
  if (run.missing.length === 0 && !cut) return null;
  return el(
    'div',
    { class: 'notice missing', role: 'note' },
    el('strong', {}, cut ? 'This run was cut short.' : 'Parts of this run are missing.'),
    el('ul', {}, ...run.missing.map(m => el('li', {}, el('code', {}, m.part), ` ${m.why}`))),
  );
}
