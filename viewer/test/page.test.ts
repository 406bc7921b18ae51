// Tests that any run opens as a usable page.

import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { absent, changes, PAGES, painted, picture, quiet, withPage, type Opened } from './browser';

const skip = absent();

const SECTIONS = [
  'answer',
  'tolls',
  'tradeoff',
  'pareto',
  'platforms',
  'varied',
  'timelines',
  'latency',
  'artefacts',
  'figures',
  'captures',
  'trust',
];
const CHARTS = [
  'tradeoff',
  'pareto',
  'tolls',
  'throughput',
  'response',
  'cpu',
  'pressure',
  'dirty',
  'latency',
  'artefacts',
];

const where = (page: Opened['page']) => page.textContent('#timelines output.where');

test('every section is there, in order, and every chart is painted', { skip }, () =>
  withPage('standard.html', {}, async opened => {
    const { page } = opened;
    const own = SECTIONS.filter(id => !['platforms', 'captures'].includes(id));
    assert.deepEqual(await page.$$eval('main > section', all => all.map(s => s.id)), own);
    for (const id of CHARTS) assert.ok(await painted(page, `#chart-${id}`), `${id} is blank`);
    for (const id of ['load-latency', 'loss', 'packet-length', 'backup']) {
      assert.ok(await painted(page, `#chart-figure-${id}`), `${id} is blank`);
    }
    assert.match((await page.textContent('.answer')) ?? '', /raises mean response time by/);
    assert.match((await page.textContent('#trust pre')) ?? '', /toll run tcpdump-impact .*--seed 7/);
    quiet(opened);
  }),
);

test('what arms trade is drawn over any two outcomes, and says which arm another beats', { skip }, () =>
  withPage('standard.html', {}, async opened => {
    const { page } = opened;
    const section = page.locator('#pareto');
    assert.match((await section.textContent()) ?? '', /Advised: the slow log \(A\)/);
    const label = () => page.getAttribute('#chart-pareto .canvas', 'aria-label');
    assert.match((await label()) ?? '', /against .*Not beaten: /);
    assert.doesNotMatch(((await label()) ?? '').split('Not beaten: ')[1] ?? '', /\bH\b/);
    const before = await picture(page, '#chart-pareto');
    await section.getByRole('group', { name: 'Up' }).getByRole('button').nth(2).click();
    await changes(page, '#chart-pareto', before);
    await page.click('#chart-pareto summary');
    await page.waitForSelector('#chart-pareto tbody tr');
    const rows = await page.$$eval('#chart-pareto tbody tr', all => all.map(row => row.textContent ?? ''));
    assert.ok(
      rows.some(row => row.startsWith('H') && row.endsWith('A')),
      rows.join('; '),
    );
    quiet(opened);
  }),
);

test('the page of a standard run stays below 1.5 MB', () => {
  assert.ok(statSync(join(PAGES, 'standard.html')).size < 1.5e6);
  assert.ok(statSync(join(PAGES, 'faithful.html')).size < 1.5e6);
});

test('the policy of the page stops a script that was not built into it', { skip }, () =>
  withPage('quick.html', {}, async ({ page }) => {
    const ran = await page.evaluate(async () => {
      const script = document.createElement('script');
      script.textContent = 'document.documentElement.dataset.ran = "yes"';
      document.body.append(script);
      const fetched = await fetch('https://example.org/').then(
        () => 'fetched',
        () => 'refused',
      );
      return [document.documentElement.dataset.ran ?? 'no', fetched];
    });
    assert.deepEqual(ran, ['no', 'refused']);
  }),
);

test('zooming one timeline by key moves all of them, and back', { skip }, () =>
  withPage('standard.html', {}, async opened => {
    const { page } = opened;
    const whole = await where(page);
    const dirty = await picture(page, '#chart-dirty');
    await page.focus('#chart-cpu .canvas');
    await page.keyboard.press('+');
    await changes(page, '#chart-dirty', dirty);
    const zoomed = await where(page);
    assert.notEqual(zoomed, whole);
    const label = () => page.getAttribute('#chart-dirty .canvas', 'aria-label');
    await page.keyboard.press('ArrowRight');
    assert.notEqual(await where(page), zoomed);
    await page.click('#chart-dirty summary');
    await page.waitForSelector('#chart-dirty tbody tr');
    const first = () => page.textContent('#chart-dirty tbody tr:first-child td:nth-child(3)');
    assert.ok(Number(await first()) > 0, 'the table shows the stretch in view');
    await page.keyboard.press('Escape');
    await page.click('#timelines button[aria-label="Show the whole run"]');
    assert.equal(await where(page), whole);
    assert.ok(Number(await first()) < 1, 'and the whole run again');
    assert.ok(await label());
    quiet(opened);
  }),
);

test('turning the wheel with Ctrl zooms every timeline', { skip }, () =>
  withPage('quick.html', {}, async opened => {
    const { page } = opened;
    const whole = await where(page);
    await page.locator('#chart-throughput .canvas').scrollIntoViewIfNeeded();
    const box = await page.locator('#chart-throughput .canvas').boundingBox();
    assert.ok(box);
    await page.mouse.move(box.x + box.width / 2, box.y + 100);
    const dirty = await picture(page, '#chart-dirty');
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -240);
    await page.keyboard.up('Control');
    await page.waitForFunction(
      before => document.querySelector('output.where')?.textContent !== before,
      whole,
    );
    await changes(page, '#chart-dirty', dirty);
    quiet(opened);
  }),
);

test('a stall in the list takes the timelines to it', { skip }, () =>
  withPage('standard.html', {}, async opened => {
    const { page } = opened;
    const whole = await where(page);
    await page.click('.stalls summary');
    await page.click('.stalls tbody tr:first-child button');
    assert.notEqual(await where(page), whole);
    quiet(opened);
  }),
);

test('arms and series are switched on and off', { skip }, () =>
  withPage('quick.html', {}, async opened => {
    const { page } = opened;
    const label = () => page.getAttribute('#chart-latency .canvas', 'aria-label');
    const chip = page.locator('#chart-latency .chip', { hasText: /^burn$/ });
    assert.doesNotMatch((await label()) ?? '', /burn: median/);
    await chip.click();
    assert.equal(await chip.getAttribute('aria-pressed'), 'true');
    assert.match((await label()) ?? '', /burn: median/);
    await page.locator('#chart-response .chip', { hasText: 'oldest in flight' }).click();
    assert.match(
      (await page.getAttribute('#chart-response .canvas', 'aria-label')) ?? '',
      /oldest in flight/,
    );
    quiet(opened);
  }),
);

test('each chart has words, a table and copies', { skip }, () =>
  withPage('quick.html', {}, async opened => {
    const { page } = opened;
    const figures = await page.$$eval('figure', all => all.map(f => f.id));
    assert.ok(figures.length > 15, String(figures.length));
    for (const id of figures) {
      const label = await page.getAttribute(`#${id} .canvas`, 'aria-label');
      assert.ok(label && label.length > 40, `${id} is not put into words: ${label}`);
      await page.click(`#${id} details.data summary`);
      await page.waitForSelector(`#${id} details.data tbody tr`, { timeout: 5_000 });
    }
    await page.click('#chart-tolls >> text=Copy CSV');
    await page.waitForFunction(
      () => document.querySelector('#chart-tolls .said')?.textContent === 'CSV copied',
    );
    const text = await page.evaluate(() => navigator.clipboard.readText());
    assert.match(text, /^metric,variant,run,unit,mean/);
    assert.match(text, /latency_us_mean,K,/);
    await page.click('#chart-tolls >> text=Copy PNG');
    await page.waitForFunction(() =>
      /PNG copied|Saved as/.test(document.querySelector('#chart-tolls .said')?.textContent ?? ''),
    );
    quiet(opened);
  }),
);

test("a run's own outcome is drawn in its unit, by the name that its definition gives it", { skip }, () =>
  withPage('quick.html', {}, async opened => {
    const { page } = opened;
    const label = (await page.getAttribute('#chart-tolls .canvas', 'aria-label')) ?? '';
    assert.match(label, /Wait for the log: .*A \+[\d.]+ ms, worse/);
    assert.match(label, /Throughput: .*A −[\d.]+%, worse/);
    await page.click('#chart-tolls details.data summary');
    await page.waitForSelector('#chart-tolls tbody tr');
    const table = (await page.textContent('#chart-tolls table')) ?? '';
    assert.match(table, /Wait for the logA[\d.]+ ms\+[\d.]+ ms\+[\d.]+ ms to \+[\d.]+ ms/);
    quiet(opened);
  }),
);

test('a link leads to its chart', { skip }, () =>
  withPage('standard.html', { link: '#chart-latency' }, async opened => {
    const top = await opened.page.$eval('#chart-latency', figure => figure.getBoundingClientRect().top);
    assert.ok(top > -5 && top < 300, `at ${top}`);
    quiet(opened);
  }),
);

test('a hostile name is shown as text, everywhere', { skip }, () =>
  withPage('hostile.html', {}, async opened => {
    const { page } = opened;
    assert.equal(await page.$$eval('img', all => all.length), 0);
    assert.match((await page.textContent('h1')) ?? '', /<img src=x onerror=/);
    const scatter = await page.locator('#chart-tradeoff .canvas').boundingBox();
    assert.ok(scatter);
    // Tooltips too: over every part of the scatter chart that has points.
    await page.locator('#chart-tradeoff .canvas').scrollIntoViewIfNeeded();
    for (const canvas of ['#chart-tradeoff', '#chart-tolls', '#chart-throughput', '#chart-figure-loss']) {
      const chart = page.locator(`${canvas} .canvas`);
      await chart.scrollIntoViewIfNeeded();
      const box = await chart.boundingBox();
      assert.ok(box);
      for (let x = 0.1; x < 1; x += 0.1)
        await page.mouse.move(box.x + box.width * x, box.y + box.height * 0.4);
    }
    for (const summary of await page.$$('figure details.data summary')) await summary.click();
    await page.waitForFunction(
      () =>
        document.querySelectorAll('details[open].data').length ===
        document.querySelectorAll('details.data tbody').length,
    );
    assert.equal(await page.$$eval('img', all => all.length), 0);
    assert.doesNotMatch(await page.title(), /broken in/);
    quiet(opened);
  }),
);

test('a run that died half-way opens, and says what is missing', { skip }, () =>
  withPage('crashed.html', {}, async opened => {
    const { page } = opened;
    const missing = (await page.textContent('.missing')) ?? '';
    assert.match(missing, /cut short/);
    assert.match(missing, /host\.json is not there/);
    assert.ok(await painted(page, '#chart-throughput'));
    quiet(opened);
  }),
);

test('two runs stand side by side, and each has its timelines', { skip }, () =>
  withPage('two-hosts.html', {}, async opened => {
    const { page } = opened;
    const answers = await page.$$eval('.run-answer h2', all => all.map(h => h.textContent));
    assert.deepEqual(answers, ['2-core x86_64 vm', '8-core aarch64 server']);
    assert.ok(await page.isVisible('#chart-1-cpu'));
    assert.ok(!(await page.isVisible('#chart-2-cpu')));
    await page.click('#timelines >> text=8-core aarch64 server');
    assert.ok(await page.isVisible('#chart-2-cpu'));
    assert.ok(await painted(page, '#chart-2-cpu'));
    await page.click('#chart-tolls summary');
    await page.waitForSelector('#chart-tolls tbody tr');
    assert.match((await page.textContent('#chart-tolls table')) ?? '', /8-core aarch64 server/);
    quiet(opened);
  }),
);

test('a phone shows all of it without scrolling sideways', { skip }, () =>
  withPage('quick.html', { width: 390 }, async opened => {
    const wide = await opened.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${wide} px too wide`);
    quiet(opened);
  }),
);

test('by night the ground is dark and the text light, and the reader may choose', { skip }, () =>
  withPage('quick.html', { dark: true }, async opened => {
    const { page } = opened;
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await ground(), 'rgb(20, 24, 29)');
    await page.click('header >> text=light');
    assert.equal(await ground(), 'rgb(255, 255, 255)');
    quiet(opened);
  }),
);

test('it prints: light, and no page but has something on it', { skip }, () =>
  withPage('quick.html', { dark: true }, async opened => {
    const pdf = await opened.page.pdf({ preferCSSPageSize: true, printBackground: true });
    assert.equal(pdf.subarray(0, 5).toString(), '%PDF-');
    const pages = pdf.toString('latin1').match(/\/Type\s*\/Page\b/g)?.length ?? 0;
    assert.ok(pages >= 5 && pages <= 14, `${pages} pages`);
    assert.ok(!(await opened.page.evaluate(() => document.documentElement.classList.contains('paper'))));
    quiet(opened);
  }),
);

const KEPT = [
  {
    run: 'quick',
    without: ['pareto', 'platforms', 'varied', 'captures'],
    charts: [
      'tradeoff',
      'tolls',
      'throughput',
      'response',
      'cpu',
      'latency',
      'figure-course',
      'figure-precision',
    ],
  },
  // Nothing was to be caught.
  {
    run: 'socket-vs-tcp',
    without: ['tradeoff', 'pareto', 'platforms', 'varied', 'artefacts', 'captures'],
    charts: ['tolls', 'throughput', 'latency', 'figure-load-latency-us-p99'],
  },
  // Packets are captured, and no server's queries are among them.
  {
    run: 'zero-loss-busy',
    without: ['tradeoff', 'pareto', 'platforms', 'latency'],
    charts: ['tolls'],
  },
];
for (const { run, without, charts } of KEPT) {
  test(`the kept run ${run} opens with the sections that it has figures for`, { skip }, () =>
    withPage(`kept-${run}.html`, {}, async opened => {
      const sections = await opened.page.$$eval('main > section', all => all.map(s => s.id));
      assert.deepEqual(
        sections,
        SECTIONS.filter(id => !without.includes(id)),
      );
      for (const id of charts) {
        assert.ok(await painted(opened.page, `#chart-${id}`), `${id} is blank`);
      }
      assert.equal(await opened.page.getByText('Parts of this run are missing').count(), 0);
      quiet(opened);
    }),
  );
}
