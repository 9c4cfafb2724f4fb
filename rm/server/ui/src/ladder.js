// The rungs that tasks climbed: one line a task, one step an attempt.

import { html } from 'htm/preact';
import { Twin, endOf } from './parts.js';
import { bytes, short, span } from './format.js';
import { to } from './route.js';
import { now } from './stream.js';

/** @param {any} a @returns {string} what a step says below its size */
function under(a) {
  const ran = span(Math.max(0, (a.ended ?? now.value) - a.started));
  if (a.reason === null || a.reason === undefined) return a.used ? `in use ${short(a.used)}` : ran;
  if (a.charge === 'success') return a.peak ? `peak ${short(a.peak)}` : 'done';
  if (a.charge === 'memory') return `OOM ${ran}`;
  return a.reason;
}

/** @param {any} a the size before it grew, if it did */
function firstSize(a) {
  return a.grown?.length ? a.grown[0].from : a.heap + a.overhead;
}

/** @param {{ a: any, app: string, task: string }} p */
function Step({ a, app, task }) {
  const [glyph, tone] = endOf(a.charge);
  const size = a.heap + a.overhead;
  const grown = a.grown?.length ? html`<small class="grown" title=${`grew ${a.grown.length} times while it ran`}>${short(firstSize(a))} ▲ </small>` : '';
  const fill = a.reason ? a.peak : a.used;
  const words = `attempt ${a.n}, ${bytes(size)}, ${a.reason ?? 'running'}${a.dimension ? `, ${a.dimension} ran out` : ''}`;
  return html`<a class=${`step ${tone}`} href=${`${to('task', `${app}/${task}`)}?attempt=${a.n}`} aria-label=${words} title=${`${words}${a.cause && a.treatment ? ` · ${a.cause} → ${a.treatment}` : ''}${a.decision ? ` · ${a.decision}` : ''}`} data-charge=${a.charge ?? 'running'}>
    <b>${grown}${short(size)}</b><span><i aria-hidden="true">${glyph}</i> ${under(a)}</span>
    <u style=${{ width: `${Math.min(100, (100 * (fill ?? 0)) / Math.max(1, size))}%` }}></u>
  </a>`;
}

const SHOWN = 7;

/** Many tasks. @param {{ rows: { app: string, row: any }[], long?: boolean }} p */
export function Ladder({ rows, long }) {
  return html`<div class="ladder" role="table" aria-label="escalation ladder">
    ${rows.map(({ app, row }) => {
      const left = Math.max(0, row.attempts.length - SHOWN);
      const shown = left ? [row.attempts[0], ...row.attempts.slice(-(SHOWN - 1))] : row.attempts;
      return html`<div class="rung" role="row" key=${`${app}/${row.task}`} data-task=${row.task}>
        <a class="who" role="rowheader" href=${to('task', `${app}/${row.task}`)} data-row>${row.task}${long ? html`<small>${app}</small>` : ''}</a>
        <div class="steps" role="cell">
          ${shown.map((/** @type {any} */ a, /** @type {number} */ i) => html`${i === 1 && left ? html`<span class="more">… ${left} more</span>` : ''}<${Step} key=${a.n} a=${a} app=${app} task=${row.task} />`)}
          ${row.state === 'pending' ? html`<span class="step later" data-charge="waiting"><b>${short(row.heap + row.overhead)}</b><span><i aria-hidden="true">…</i> waits</span></span>` : ''}
        </div>
      </div>`;
    })}
  </div>
  <${Twin} name="ladder as a table" head=${['task', 'attempt', 'rung', 'limit', 'peak', 'end', 'ran out', 'node']} rows=${rows.flatMap(({ row }) =>
    row.attempts.map((/** @type {any} */ a) => [row.task, a.n, a.rung, bytes(a.heap + a.overhead), bytes(a.peak), a.reason ?? 'running', a.dimension ?? '–', a.node]))} />`;
}
