// Runner of the page's tests.
//
// Makes the pages that they open (by toll's own code, from invented runs and from some that were kept), compiles
// the tests, and hands them to node's test runner.

import { build } from 'esbuild';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
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

/** A slow log of three hours: a query of each class in each minute. */
function slowLog(factor) {
  const begin = 1_764_165_600;
  const lines = [];
  for (let minute = 0; minute < 180; minute++) {
    for (const [n, table] of ['cart', 'item', 'visit'].entries()) {
      lines.push(
        '# User@Host: app[app] @ localhost []',
        `# Query_time: ${((n + 1) * factor * 0.5).toFixed(6)}  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: 1`,
        `SET timestamp=${begin + 60 * minute};`,
        `SELECT name FROM ${table} WHERE id = ${minute};`,
      );
    }
  }
  return `${lines.join('\n')}\n`;
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
  // Each host runs the same queries, and one of them is slower.
  for (const [host, cluster, factor] of [
    ['db1', 'shop', 1],
    ['db2', 'shop', 3],
    ['db3', 'blog', 1],
  ]) {
    const log = join(pages, `${host}.log`);
    writeFileSync(log, slowLog(factor));
    const tables = join(pages, 'tables');
    const options = ['--host', host, '--cluster', cluster, '--every', '1m', '--parquet', tables];
    status ||= cargo('-p', 'toll', '--', 'digest', ...options, log);
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
      env: {
        TOLL_TEST_FLEET: here('../../fleet/target/debug/toll-fleet'),
        ...process.env,
        TOLL_TEST_PAGES: pages,
      },
    });
  }
} finally {
  rmSync(pages, { recursive: true, force: true });
}
process.exit(status);
