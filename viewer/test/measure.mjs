// Measurement of a page's size and response time.
//
// `npm run measure -- FILE.html...` opens each page five times in a fresh browser context. Times are the
// page's own marks, counted from the start of its navigation. Asserts nothing: the tests do.

import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const ROUNDS = 5;
const browser = await chromium.launch({
  executablePath: process.env.TOLL_TEST_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
});
for (const file of process.argv.slice(2)) {
  const times = { 'toll-interactive': [], 'toll-drawn': [] };
  for (let round = 0; round < ROUNDS; round++) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, offline: true });
    const page = await context.newPage();
    await page.goto(pathToFileURL(resolve(file)).href);
    await page.waitForSelector('html[data-drawn]', { state: 'attached' });
    for (const name of Object.keys(times)) {
      times[name].push(await page.evaluate(n => performance.getEntriesByName(n)[0].startTime, name));
    }
    await context.close();
  }
  const range = list => `${Math.round(Math.min(...list))} to ${Math.round(Math.max(...list))} ms`;
  console.log(
    `${file}: ${statSync(file).size} bytes, first screen drawn after ${range(times['toll-interactive'])}, all charts after ${range(times['toll-drawn'])}`,
  );
}
await browser.close();
