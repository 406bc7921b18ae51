// Runner of the page's tests.
//
// Makes the pages that they open (by toll's own code, from invented runs and from some that were kept), compiles
// the tests, and hands them to node's test runner.

import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path => fileURLToPath(new URL(path, import.meta.url));
const pages = mkdtempSync(join(tmpdir(), 'toll-viewer-'));

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { stdio: 'inherit', ...options });
  if (error) throw new Error(`cannot run ${command}: ${error.message}`);
  return status ?? 1;
}

let status = 1;
try {
  const cargo = (...args) => run('cargo', ['run', '--quiet', ...args], { cwd: here('../..') });
  status = cargo('-p', 'toll-report', '--example', 'fixture_pages', '--', pages);
  const keptRuns = {
    quick: '2026-11-21-2-core-vm',
    'socket-vs-tcp': '2026-11-21-2-core-vm',
    'zero-loss-busy': '2026-11-22-4-core-vm',
  };
  for (const [kept, host] of Object.entries(keptRuns)) {
    const page = join(pages, `kept-${kept}.html`);
    const directory = here(`../../runs/${host}/${kept}`);
    status ||= cargo('-p', 'toll', '--', 'report', directory, '--format', 'html', '-o', page);
  }
  if (status === 0) {
    const tests = readdirSync(here('.')).filter(name => name.endsWith('.test.ts'));
    await build({
      entryPoints: tests.map(name => here(name)),
      outdir: join(pages, 'tests'),
      outExtension: { '.js': '.mjs' },
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node20',
      // Named by file: what is compiled lies far from node_modules.
      plugins: [
        {
          name: 'installed',
          setup: ({ onResolve }) =>
            onResolve({ filter: /^playwright-core$/ }, () => ({
              path: new URL('../node_modules/playwright-core/index.mjs', import.meta.url).href,
              external: true,
            })),
        },
      ],
    });
    const compiled = tests.map(name => join(pages, 'tests', name.replace('.ts', '.mjs')));
    // One at a time: browsers that share two cores would time each other out.
    status = run('node', ['--test', '--test-reporter=spec', '--test-concurrency=1', ...compiled], {
      env: { ...process.env, TOLL_TEST_PAGES: pages },
    });
  }
} finally {
  rmSync(pages, { recursive: true, force: true });
}
process.exit(status);
