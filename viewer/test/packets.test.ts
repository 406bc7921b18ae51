// Tests of the packet figures (sent, lost, captured) for one run and for two.

import assert from 'node:assert/strict';
import test from 'node:test';
import { absent, changes, painted, picture, quiet, withPage } from './browser';

const skip = absent();

test('what arms were varied by is drawn as lines over named places, and put into words', { skip }, () =>
  withPage('loss.html', {}, async opened => {
    const { page } = opened;
    const chart = '#varied #chart-figure-varied-loss-by-rate';
    assert.ok(await painted(page, chart));
    const label = () => page.getAttribute(`${chart} .canvas`, 'aria-label');
    assert.match(
      (await label()) ?? '',
      /Packets lost, % against rate asked for, Mb\/s: http, from 0 to .*; mixed, from 0 to /,
    );
    await page.click(`${chart} summary`);
    await page.waitForSelector(`${chart} tbody tr`);
    const rows = await page.$$eval(`${chart} tbody tr`, all => all.map(row => row.textContent ?? ''));
    assert.equal(rows.length, 4 * 5);
    // In the order of the scenario, what is no number last.
    assert.match(rows[4] ?? '', /^httptopspeed/);
    const before = await picture(page, chart);
    await page.locator(`${chart} .chip`, { hasText: 'mixed' }).focus();
    await page.keyboard.press('Enter');
    await changes(page, chart, before);
    quiet(opened);
  }),
);

test('where packets got lost is a bar for each arm, and its parts add up', { skip }, () =>
  withPage('loss.html', {}, async opened => {
    const { page } = opened;
    const chart = '#varied #chart-figure-ledger';
    assert.ok(await painted(page, chart));
    // Twenty arms, at 22 px.
    assert.equal(await page.$eval(`${chart} canvas`, canvas => canvas.clientHeight), 66 + 20 * 22);
    const label = (await page.getAttribute(`${chart} .canvas`, 'aria-label')) ?? '';
    assert.match(label, /before seen, from 0 to .*; before written, from 0 to /);
    await page.click(`${chart} summary`);
    await page.waitForSelector(`${chart} tbody tr`);
    const rows = await page.$$eval(`${chart} tbody tr`, all =>
      all.map(row => [...row.children].map(cell => cell.textContent ?? '')),
    );
    const of = (series: string) => Number(rows.find(r => r[0] === series && r[1] === 'mixed-900')?.[2]);
    assert.ok(of('before seen') > 0 && Math.abs(of('before written') / of('before seen') - 9) < 0.1);
    const before = await picture(page, chart);
    await page.locator(`${chart} .chip`, { hasText: 'before written' }).click();
    await changes(page, chart, before);
    quiet(opened);
  }),
);

test('arms of a varied scenario stand in groups, whose names are no arms', { skip }, () =>
  withPage('loss.html', {}, async opened => {
    const { page } = opened;
    const label = (await page.getAttribute('#chart-tolls .canvas', 'aria-label')) ?? '';
    assert.match(label, /Packets lost: http-100 0%.*; mixed-topspeed /);
    const height = await page.$eval('#chart-tolls canvas', canvas => canvas.clientHeight);
    // Twenty arms and four names of groups, at 22 px.
    assert.equal(height, 64 + 24 * 22);
    await page.click('#chart-tolls summary');
    await page.waitForSelector('#chart-tolls tbody tr');
    const cells = await page.$$eval('#chart-tolls tbody td:nth-child(2)', all => all.map(c => c.textContent));
    assert.ok(cells.includes('http-900') && !cells.includes('set http'), cells.join());
    quiet(opened);
  }),
);

test('what was sent is drawn: shares, and lengths in bins with those that are empty', { skip }, () =>
  withPage('loss.html', {}, async opened => {
    const { page } = opened;
    assert.ok(await painted(page, '#captures #chart-figure-capture-shares'));
    const id = '#chart-figure-capture-lengths-http-pcap';
    assert.ok(await painted(page, `#captures ${id}`));
    await page.click('#chart-figure-capture-shares summary');
    await page.waitForSelector('#chart-figure-capture-shares tbody tr');
    const shares = (await page.textContent('#chart-figure-capture-shares tbody')) ?? '';
    assert.match(shares, /TCPhttp\.pcap100.*TCPmixed\.pcap10UDPhttp\.pcap0/);
    await page.click(`${id} summary`);
    await page.waitForSelector(`${id} tbody tr`);
    const bins = await page.$$eval(`${id} tbody tr`, all => all.map(row => row.textContent));
    assert.ok(bins.includes('TCP5000') && bins.length === 15, bins.join());
    quiet(opened);
  }),
);

test('runs of two platforms are laid over each other, with what tells them apart', { skip }, () =>
  withPage('platforms.html', { dark: true }, async opened => {
    const { page } = opened;
    const section = (await page.textContent('#platforms')) ?? '';
    assert.match(section, /These runs differ in kernel, libpcap, commands\./);
    const head = await page.$$eval('#platforms table:first-of-type thead th', all =>
      all.map(cell => cell.textContent),
    );
    assert.deepEqual(head.slice(0, 6), ['platform', 'system', 'kernel', 'tcpdump', 'libpcap', 'commands']);
    assert.match(section, /2-core x86_64 vm, kernel 6\.1\.0.*1\.10\.3-B 2048/);
    // A figure for each set, with a line for each platform, in the place of one for all.
    for (const set of ['http', 'flash', 'skype', 'mixed']) {
      const id = `#platforms #chart-figure-varied-loss-by-rate-of-${set}`;
      assert.ok(await painted(page, id), set);
      const chips = await page.$$eval(`${id} .chip`, all => all.map(chip => chip.textContent));
      assert.deepEqual(chips, ['2-core x86_64 vm, kernel 6.1.0', '2-core x86_64 vm, kernel 6.18.1']);
    }
    const varied = await page.$$eval('#varied figure', all => all.map(f => f.id));
    assert.deepEqual(varied, ['chart-figure-ledger', 'chart-figure-ledger-2']);
    // What was sent is the same, and drawn once.
    assert.equal((await page.$$('#captures figure')).length, 5);
    quiet(opened);
  }),
);

test(
  'a page of captures by themselves is drawn by the same hand, and no name in it is markup',
  { skip },
  () =>
    withPage('captures.html', { width: 390 }, async opened => {
      const { page } = opened;
      assert.match((await page.textContent('h1')) ?? '', /What the captures are made of/);
      assert.deepEqual(await page.$$eval('main > section', all => all.map(s => s.id)), ['captures']);
      const figures = await page.$$eval('figure', all => all.map(f => f.id));
      // Shares of both; lengths and rate of each.
      assert.equal(figures.length, 5);
      for (const id of figures) assert.ok(await painted(page, `#${id}`), `${id} is blank`);
      const flows = (await page.textContent('.figure-table table')) ?? '';
      assert.match(flows, /tcp 192\.0\.2\.1:40000 - 192\.0\.2\.2:80/);
      assert.equal(await page.$$eval('img', all => all.length), 0);
      assert.match((await page.textContent('#captures')) ?? '', /<img src=x onerror=/);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${wide} px too wide`);
      quiet(opened);
    }),
);
