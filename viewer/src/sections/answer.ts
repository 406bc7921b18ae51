// What was asked, and what is the answer, in one sentence?

import type { Page, Run } from '../data';
import { el } from '../dom';
import { date, num, seconds } from '../format';

export function answerSection(page: Page): HTMLElement {
  const one = page.runs.length === 1;
  const questions = [...new Set(page.runs.map(run => run.result?.question ?? run.plan?.question ?? ''))];
  return el(
    'section',
    { id: 'answer', 'aria-label': 'Question and answer' },
    ...questions.filter(Boolean).map(question => el('h1', {}, question)),
    ...page.runs.map(run =>
      el(
        'div',
        { class: 'run-answer' },
        one ? null : el('h2', {}, run.name),
        el('p', { class: 'answer' }, answer(run)),
        facts(run),
        ...(run.result?.advice ?? []).map(text => el('p', { class: 'advice' }, text)),
        missing(run),
      ),
    ),
  );
}

function answer(run: Run): string {
  if (run.result?.answer) return run.result.answer;
  return 'There is no answer yet: this run was not analysed to its end. What was recorded until then stands below.';
}

function facts(run: Run): HTMLElement {
  const { result, plan } = run;
  const of = result ?? plan;
  const server = of ? (of.server ? `${of.server.flavour} ${of.server.version}` : 'no server') : null;
  const items = [
    of?.scenario,
    of?.profile ? `profile ${of.profile}` : null,
    server,
    result?.host.label ?? run.host?.label,
    result
      ? `${result.rounds_done} of ${result.rounds_planned} rounds`
      : plan
        ? `${plan.rounds} rounds planned`
        : null,
    of ? `windows of ${seconds(of.window_s)}` : null,
    result ? `took ${seconds(result.duration_s)}` : null,
    result?.mde?.achieved_pct ? `finds effects of ${num(result.mde.achieved_pct)}% and more` : null,
    of ? date(of.started_wall_us) : null,
  ];
  return el('ul', { class: 'facts' }, ...items.filter(Boolean).map(item => el('li', {}, item)));
}

/** What this run lacks, said where nobody can overlook it. */
function missing(run: Run): HTMLElement | null {
  const cut = run.result && !run.result.complete;
  if (run.missing.length === 0 && !cut) return null;
  return el(
    'div',
    { class: 'notice missing', role: 'note' },
    el('strong', {}, cut ? 'This run was cut short.' : 'Parts of this run are missing.'),
    el('ul', {}, ...run.missing.map(m => el('li', {}, el('code', {}, m.part), ` ${m.why}`))),
    run.result
      ? null
      : el('p', {}, 'Analyse it again with ', el('code', {}, `toll report ${run.directory}`), '.'),
  );
}
