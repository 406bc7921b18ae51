// How does the TypeScript become the one template that toll's binary carries?
//
// `node build.mjs` writes it; `node build.mjs --check` fails if what is kept beside the Rust sources is not
// what these sources give. Everything is inlined, and the page's own policy lets only this script run.

import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const here = path => fileURLToPath(new URL(path, import.meta.url));
const TEMPLATE = here('../crates/lab/report/src/page.html');
const LIMIT_BYTES = 1_200_000;
const SLOT = '{{toll-data}}';

async function bundle(entry) {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    format: 'iife',
    target: ['es2022'],
    charset: 'utf8',
    legalComments: 'none',
    // Keeps the library's checks for developers out of the page.
    define: { 'process.env.NODE_ENV': '"production"' },
  });
  return result.outputFiles[0].text.trim();
}

const hash = text => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const text = path => readFile(here(path), 'utf8');
const [script, style, shell, ...terms] = await Promise.all([
  bundle('src/main.ts'),
  bundle('src/page.css'),
  text('src/page.html'),
  // A page that is mailed is a copy of the library: its terms travel along.
  text('node_modules/echarts/NOTICE'),
  text('node_modules/echarts/LICENSE'),
  text('node_modules/zrender/LICENSE'),
  text('node_modules/tslib/LICENSE.txt'),
]);
const notice = terms.join('\n').replaceAll('--', '- -');
const policy = [
  "default-src 'none'",
  `script-src ${hash(script)}`,
  `style-src ${hash(style)}`,
  'img-src data: blob:',
  "base-uri 'none'",
  "form-action 'none'",
].join('; ');
const parts = { policy, style, script, notice: notice.trim() };
const page = shell.replaceAll(/\{\{(policy|style|script|notice)\}\}/g, (_, name) => parts[name]);

if (page.split(SLOT).length !== 2) throw new Error(`the page needs ${SLOT} exactly once`);
if (Buffer.byteLength(page) > LIMIT_BYTES) {
  throw new Error(`the page has ${Buffer.byteLength(page)} bytes, more than ${LIMIT_BYTES}: import less`);
}
if (process.argv.includes('--check')) {
  const kept = await readFile(TEMPLATE, 'utf8');
  if (kept !== page) {
    console.error(
      'crates/lab/report/src/page.html is not what viewer/ gives: run `make viewer` and commit it',
    );
    process.exit(1);
  }
} else {
  await writeFile(TEMPLATE, page);
}
console.log(`page.html: ${Buffer.byteLength(page)} bytes (at most ${LIMIT_BYTES})`);
