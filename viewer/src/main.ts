// Entry point of the page: builds its sections in order.
//
// Text first, then the charts from top to bottom, a few milliseconds at a time: the page stays responsive
// while charts are drawn. Marks on the performance timeline record when each was done.

import { catches, readPage, serves, type Page } from './data';
import { choices, el } from './dom';
import { figures } from './figure';
import { answerSection } from './sections/answer';
import { artefactSection } from './sections/artefacts';
import { capturesSection } from './sections/captures';
import { chartsSection, variedSection } from './sections/charts';
import { forestSection } from './sections/forest';
import { latencySection } from './sections/latency';
import { overlaySection } from './sections/overlay';
import { paretoSection } from './sections/pareto';
import { timelineSection } from './sections/timeline';
import { tradeoffSection } from './sections/tradeoff';
import { madeBy, trustSection } from './sections/trust';
import { setTheme, type Theme } from './theme';

/** Paper that is 210 mm wide, without its margins, in CSS pixels. */
const PAPER_PX = 690;
/** Paper shows more than most screens: 240 dots to the inch. */
const PAPER_SHARPNESS = 2.5;

function show(page: Page): void {
  document.title = `toll: ${subject(page)}`;
  const sections = page.runs.length > 0 ? ofRuns(page) : ofCaptures(page);
  const main = el('main', { id: 'main' }, ...sections);
  document
    .getElementById('page')
    ?.replaceChildren(
      el('a', { class: 'skip', href: '#main' }, 'Skip to the result'),
      header(sections),
      main,
    );
}

/** For the window's title. */
function subject(page: Page): string {
  const [first] = page.runs;
  if (!first) return 'profiles of captures';
  const { scenario } = first.result;
  return page.runs.length > 1 ? `${scenario}, ${page.runs.length} runs` : scenario;
}

function ofRuns(page: Page): HTMLElement[] {
  return [
    answerSection(page),
    forestSection(page),
    catches(page) && serves(page) ? tradeoffSection(page) : null,
    paretoSection(page),
    overlaySection(page),
    variedSection(page),
    timelineSection(page),
    serves(page) ? latencySection(page) : null,
    catches(page) ? artefactSection(page) : null,
    chartsSection(page),
    capturesSection(page),
    trustSection(page),
  ].filter(section => section !== null);
}

function ofCaptures(page: Page): HTMLElement[] {
  const captures = capturesSection(page);
  return [...(captures ? [captures] : []), madeBy(page, 'what the captures hold')];
}

/** What the parts are called where there is little room. */
const NAMES: Record<string, string> = {
  answer: 'Result',
  tradeoff: 'Overhead and capture',
  pareto: 'What is traded',
  platforms: 'Platforms',
  varied: 'By variant',
  tolls: 'Overhead',
  timelines: 'Timelines',
  latency: 'Latency',
  artefacts: 'Artefacts',
  figures: 'Figures',
  captures: 'Captures',
  trust: 'Checks',
};

function header(sections: HTMLElement[]): HTMLElement {
  const links = sections.flatMap(section => {
    const name = NAMES[section.id];
    return name ? [el('li', {}, el('a', { href: `#${section.id}` }, name))] : [];
  });
  const themes: Theme[] = ['auto', 'light', 'dark'];
  const theme = choices(
    'Colours',
    themes.map((label, at) => ({ label, on: at === 0 })),
    true,
    on => {
      setTheme(themes[on.indexOf(true)] ?? 'auto');
      redraw();
    },
  );
  return el(
    'header',
    {},
    el('strong', { class: 'brand' }, 'toll'),
    el('nav', { 'aria-label': 'Parts of this page' }, el('ul', {}, ...links)),
    theme,
  );
}

function redraw(): void {
  for (const figure of figures) if (figure.drawn) figure.draw();
}

/** Draws all charts, with a breath between any two, so that keys and clicks are answered. */
async function drawAll(): Promise<void> {
  const screen = window.innerHeight;
  let marked = false;
  for (const figure of figures) {
    const below = figure.element.getBoundingClientRect().top > screen;
    if (below && !marked) {
      performance.mark('toll-interactive');
      marked = true;
    }
    figure.draw();
    await new Promise(resolve => setTimeout(resolve));
  }
  if (!marked) performance.mark('toll-interactive');
  for (const figure of figures) figure.flush();
  performance.mark('toll-drawn');
  document.documentElement.dataset.drawn = 'true';
}

/** Charts were not there yet when the browser looked for the place that the link names. */
function followLink(): void {
  const id = decodeURIComponent(location.hash.slice(1));
  if (id) document.getElementById(id)?.scrollIntoView();
}

function onPaper(): void {
  document.documentElement.classList.add('paper');
  for (const hidden of document.querySelectorAll<HTMLElement>('.timelines[hidden]')) {
    hidden.hidden = false;
    hidden.dataset.unhidden = 'true';
  }
  for (const figure of figures) {
    figure.draw(PAPER_PX, PAPER_SHARPNESS);
    figure.flush();
  }
}

function offPaper(): void {
  document.documentElement.classList.remove('paper');
  for (const shown of document.querySelectorAll<HTMLElement>('.timelines[data-unhidden]')) {
    shown.hidden = true;
    delete shown.dataset.unhidden;
  }
  redraw();
}

async function begin(): Promise<void> {
  let page: Page;
  try {
    page = await readPage();
  } catch {
    // An older browser lacks DecompressionStream; the template lacks data.
    document
      .getElementById('page')
      ?.replaceChildren(
        el(
          'p',
          { class: 'notice' },
          'This page holds no data that this browser can read. Open a report.html, in a browser of 2023 or later.',
        ),
      );
    return;
  }
  show(page);
  followLink();
  window.addEventListener('hashchange', followLink);
  window.addEventListener('beforeprint', onPaper);
  window.addEventListener('afterprint', offPaper);
  let pending = 0;
  window.addEventListener('resize', () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => figures.forEach(figure => figure.resized()));
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraw());
  void drawAll().then(followLink);
}

void begin();
