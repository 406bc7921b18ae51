// Tests of the page of `toll-fleet serve`, on tables of three hosts in two clusters.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'node:test';
import { absent, PAGES, painted, quiet, withPage, type Opened } from './browser';

const FLEET = process.env.TOLL_TEST_FLEET ?? '';
const notBuilt = existsSync(FLEET)
  ? false
  : 'SKIPPED: toll-fleet is not built (scripts/test-fleet builds it)';
if (notBuilt) console.error(notBuilt);
const skip = absent() || notBuilt;

/** Opens the page of a server of its own. */
async function withServed(link: string, check: (opened: Opened) => Promise<void>): Promise<void> {
  const places = ['--listen', '127.0.0.1:0', '--page', '127.0.0.1:0'];
  const server = spawn(FLEET, ['serve', '--tables', join(PAGES, 'tables'), ...places], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  try {
    let url = '';
    for await (const line of createInterface({ input: server.stderr })) {
      url = /page at (http:\S+)/.exec(line)?.[1] ?? '';
      if (url) break;
    }
    assert.ok(url, 'it ended before it said where the page is');
    await withPage(`${url}/`, { link }, check);
  } finally {
    server.kill();
  }
}

const cells = (page: Opened['page'], column: number) =>
  page.$$eval(`#content tbody tr:not(.below) > :nth-child(${column})`, all =>
    all.map(one => one.textContent),
  );
const drawn = (page: Opened['page']) => page.waitForSelector('html[data-drawn]', { state: 'attached' });

test('classes of all hosts are ranked, drawn, opened and sorted', { skip }, () =>
  withServed('', async opened => {
    const { page } = opened;
    assert.deepEqual(await cells(page, 1), ['SELECT visit', 'SELECT item', 'SELECT cart']);
    assert.deepEqual(await cells(page, 2), ['540', '540', '540']);
    assert.ok(await painted(page, '#load'), 'the chart is blank');
    assert.match((await page.textContent('.facts')) ?? '', /^3 hosts/);
    await page.click('#content tbody button.row');
    await page.waitForSelector('.below pre');
    assert.equal(await page.textContent('.below pre'), 'select name from visit where id = ?');
    const hosts = await page.$$eval('.below tbody th', all => all.map(one => one.textContent));
    assert.deepEqual(hosts, ['db2', 'db1', 'db3']);
    assert.match(page.url(), /class=[0-9A-F]{32}/);
    // The least first, at the second click.
    for (let click = 0; click < 2; click++) await page.click('#content th button:text-is("Time")');
    assert.deepEqual(await cells(page, 1), ['SELECT cart', 'SELECT item', 'SELECT visit']);
    quiet(opened);
  }),
);

test('a cluster, a table and a stretch of time are chosen, and the link keeps them', { skip }, () =>
  withServed('#range=all&tab=Hosts', async opened => {
    const { page } = opened;
    assert.deepEqual(await cells(page, 1), ['db2', 'db1', 'db3']);
    await page.selectOption('select', { label: 'blog' });
    await page.waitForFunction(() => document.querySelectorAll('#content tbody tr').length === 1);
    assert.deepEqual(await cells(page, 1), ['db3']);
    await page.click('button:text-is("Classes")');
    await page.waitForSelector('#content button.row');
    await drawn(page);
    assert.deepEqual(await cells(page, 2), ['180', '180', '180']);
    const box = await (await page.waitForSelector('#load .u-over')).boundingBox();
    assert.ok(box);
    await page.mouse.move(box.x + box.width * 0.25, box.y + 40);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 5 });
    await page.mouse.up();
    await page.waitForFunction(() => document.querySelector('#content td.number')?.textContent !== '180');
    await drawn(page);
    const some = Number((await cells(page, 2))[0]);
    assert.ok(some > 30 && some < 60, `${some} of 180 queries in a quarter of the time`);
    assert.match(page.url(), /since=\d+&until=\d+&cluster=blog/);
    quiet(opened);
  }),
);

test('the last hours end now, though the clock of a host is far ahead', { skip }, () =>
  withServed('#range=6+hours', async opened => {
    const { page } = opened;
    // The tables have three hours, of which two are yet to come.
    await page.clock.setFixedTime((1_764_165_600 + 3_600) * 1000);
    await page.reload();
    await drawn(page);
    assert.deepEqual(await cells(page, 2), ['180', '180', '180']);
    await page.click('button:text-is("all")');
    await page.waitForFunction(() => document.querySelector('#content td.number')?.textContent === '540');
    quiet(opened);
  }),
);
