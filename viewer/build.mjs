// How does the TypeScript become what toll's programs carry: the template of a run's page, the page of toll-fleet, and
// the dashboard for Grafana?
//
// `node build.mjs` writes them; `node build.mjs --check` fails if what is kept beside the Rust sources is not
// what these sources give. Everything is inlined, and a page's own policy lets only its script run.

import { build } from 'esbuild';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const here = path => fileURLToPath(new URL(path, import.meta.url));
const text = path => readFile(here(path), 'utf8');
const SLOT = '{{toll-data}}';

const PAGES = [
  {
    kept: 'crates/lab/report/src/page.html',
    shell: 'src/page.html',
    script: 'src/main.ts',
    style: 'src/page.css',
    limitBytes: 1_200_000,
    // Data that a report fills in; the page asks the network for nothing.
    slots: 1,
    policy: [],
    terms: ['echarts/NOTICE', 'echarts/LICENSE', 'zrender/LICENSE', 'tslib/LICENSE.txt'],
  },
  {
    kept: 'fleet/src/page.html',
    shell: 'src/fleet/page.html',
    script: 'src/fleet/main.ts',
    style: 'src/fleet/fleet.css',
    limitBytes: 120_000,
    slots: 0,
    policy: ["connect-src 'self'"],
    terms: ['uplot/LICENSE'],
  },
];

async function bundle(entry) {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    outdir: here('.'),
    format: 'iife',
    target: ['es2022'],
    charset: 'utf8',
    legalComments: 'none',
    // Keeps the library's checks for developers out of the page.
    define: { 'process.env.NODE_ENV': '"production"' },
  });
  const of = end => result.outputFiles.find(file => file.path.endsWith(end))?.text.trim() ?? '';
  return { script: of('.js'), style: of('.css') };
}

const hash = text => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

async function page({ kept, shell, script: entry, style: sheet, limitBytes, slots, policy, terms }) {
  const [{ script }, { style }, html, ...notices] = await Promise.all([
    bundle(entry),
    bundle(sheet),
    text(shell),
    // A page that is mailed is a copy of the library: its terms travel along.
    ...terms.map(path => text(`node_modules/${path}`)),
  ]);
  const parts = {
    policy: [
      "default-src 'none'",
      `script-src ${hash(script)}`,
      `style-src ${hash(style)}`,
      ...policy,
      'img-src data: blob:',
      "base-uri 'none'",
      "form-action 'none'",
    ].join('; '),
    style,
    script,
    notice: notices.join('\n').replaceAll('--', '- -').trim(),
  };
  const page = html.replaceAll(/\{\{(policy|style|script|notice)\}\}/g, (_, name) => parts[name]);
  if (page.split(SLOT).length !== slots + 1) throw new Error(`${kept} needs ${SLOT} ${slots} times`);
  const bytes = Buffer.byteLength(page);
  if (bytes > limitBytes) {
    throw new Error(`${kept} has ${bytes} bytes, more than ${limitBytes}: import less`);
  }
  console.log(`${kept}: ${bytes} bytes (at most ${limitBytes})`);
  return [kept, page];
}

/** The dashboard is made by the sources' own code. */
async function dashboard() {
  const dir = await mkdtemp(join(tmpdir(), 'toll-dashboard-'));
  try {
    const outfile = join(dir, 'dashboard.mjs');
    const entry = here('src/fleet/dashboard.ts');
    await build({ entryPoints: [entry], outfile, bundle: true, format: 'esm', platform: 'node' });
    const { built } = await import(pathToFileURL(outfile).href);
    return ['docs/howto/fleet-dashboard.json', `${JSON.stringify(built, null, 2)}\n`];
  } finally {
    await rm(dir, { recursive: true });
  }
}

for (const [kept, made] of [...(await Promise.all(PAGES.map(page))), await dashboard()]) {
  const path = here(`../${kept}`);
  if (!process.argv.includes('--check')) {
    await writeFile(path, made);
  } else if ((await readFile(path, 'utf8')) !== made) {
    console.error(`${kept} is not what viewer/ gives: run \`make viewer\` and commit it`);
    process.exitCode = 1;
  }
}
