// Builds dist/ from src/. The same sources and the same package-lock.json give the same bytes.
import { build } from 'esbuild';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, 'dist');
mkdirSync(out, { recursive: true });

await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.js' },
  outdir: out,
  bundle: true,
  minify: true,
  format: 'iife',
  target: ['es2022'],
  legalComments: 'none',
  charset: 'utf8',
  logLevel: 'warning',
});
for (const name of ['index.html', 'icon.svg']) cpSync(join(here, 'src', name), join(out, name));

// What is built in comes with its licence.
const packages = ['preact', 'htm', '@preact/signals', '@preact/signals-core', 'uplot'];
const licence = (name) => {
  const folder = join(here, 'node_modules', name);
  const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  for (const file of ['LICENSE', 'LICENSE.md', 'LICENSE.txt']) {
    try {
      return `${name} ${about.version} (${about.license})\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
    } catch {
      // Called otherwise in this package.
    }
  }
  return `${name} ${about.version} (${about.license})\n`;
};
writeFileSync(join(out, 'licenses.txt'), packages.map(licence).join(`\n${'-'.repeat(80)}\n\n`));
