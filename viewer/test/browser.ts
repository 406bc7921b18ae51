// Browser for the tests, with checks for forbidden requests and errors.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, type BrowserContext, type Page } from 'playwright-core';

export const PAGES = process.env.TOLL_TEST_PAGES ?? '';
const CHROMIUM = process.env.TOLL_TEST_CHROMIUM ?? '/usr/bin/chromium';

/** Why no page can be opened here; nothing where one can. */
export function absent(): string | false {
  if (existsSync(CHROMIUM)) return false;
  const why = `SKIPPED: ${CHROMIUM} is not there: install chromium, or name it in TOLL_TEST_CHROMIUM`;
  console.error(why);
  return why;
}

export interface Opened {
  page: Page;
  context: BrowserContext;
  /** Errors on the console and uncaught ones; a page must have none. */
  errors: string[];
  /** Addresses asked for beside the page's own; a page must ask for none. */
  requests: string[];
}

export interface Options {
  width?: number;
  dark?: boolean;
  link?: string;
}

/** Opens a page from disk without a network, or one by its address, in a fresh profile, once its charts are drawn. */
export async function withPage(
  name: string,
  options: Options,
  check: (opened: Opened) => Promise<void>,
): Promise<void> {
  const isServed = name.startsWith('http:');
  const profile = mkdtempSync(join(tmpdir(), 'toll-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    offline: !isServed,
    viewport: { width: options.width ?? 1280, height: 900 },
    colorScheme: options.dark ? 'dark' : 'light',
    permissions: ['clipboard-read', 'clipboard-write'],
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
  try {
    const page = await context.newPage();
    const errors: string[] = [];
    const requests: string[] = [];
    const url = isServed ? name : pathToFileURL(join(PAGES, name)).href;
    page.on('pageerror', error => errors.push(error.message));
    page.on('console', message => {
      if (message.type() === 'error' || message.type() === 'warning') errors.push(message.text());
    });
    page.on('request', request => {
      if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url()))
        requests.push(request.url());
    });
    await page.goto(url + (options.link ?? ''), { waitUntil: 'domcontentloaded' });
    await page.waitForSelector('html[data-drawn]', { timeout: 60_000, state: 'attached' });
    await check({ page, context, errors, requests });
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

/** Whether anything but the ground was painted on a chart. */
export function painted(page: Page, figure: string): Promise<boolean> {
  return page.$eval(`${figure} canvas`, canvas => {
    const { width, height } = canvas as HTMLCanvasElement;
    const data = (canvas as HTMLCanvasElement).getContext('2d')?.getImageData(0, 0, width, height).data;
    return data?.some(byte => byte !== 0) ?? false;
  });
}

/** What a chart shows at this moment; equal pictures are equal strings. */
export function picture(page: Page, figure: string): Promise<string> {
  return page.$eval(`${figure} canvas`, canvas => (canvas as HTMLCanvasElement).toDataURL());
}

/** Nothing failed, and nothing was asked of a network. */
export function quiet({ errors, requests }: Opened): void {
  assert.deepEqual(errors, []);
  assert.deepEqual(requests, []);
}

/** Waits until a chart looks otherwise than before. */
export async function changes(page: Opened['page'], figure: string, before: string): Promise<void> {
  for (let tries = 0; tries < 100 && (await picture(page, figure)) === before; tries++) {
    await page.waitForTimeout(50);
  }
  assert.notEqual(await picture(page, figure), before, `${figure} stood still`);
}
