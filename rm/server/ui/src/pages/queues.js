// Queues, what they can count on, and why something waits in them.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { Ago, Card, Chip, Command, Empty, Nowhere, State, Twin, Waiting } from '../parts.js';
import { bytes, count, percentText } from '../format.js';
import { to } from '../route.js';
import { board } from '../stream.js';

export const topics = () => ['queues'];

/** Used, guaranteed and most of one queue. @param {{ q: any, whole: number }} p */
function Share({ q, whole }) {
  const at = (/** @type {number} */ n) => `${Math.min(100, whole ? (100 * n) / whole : 0)}%`;
  const text = `${bytes(q.used.memory)} in use, ${bytes(q.guaranteed.memory)} guaranteed, at most ${bytes(q.maximum.memory)}, ${bytes(q.waiting.memory)} waits`;
  return html`<div class="share" role="img" aria-label=${text} title=${text}><i class="most" style=${{ width: at(q.maximum.memory) }}></i><i class=${`have ${q.below_guarantee ? 'low' : ''}`} style=${{ width: at(q.used.memory) }}></i><i class="want" style=${{ left: at(q.used.memory), width: at(q.waiting.memory) }}></i>${q.guaranteed.memory ? html`<u style=${{ left: at(q.guaranteed.memory) }}></u>` : ''}</div>`;
}

/** The nodes that were looked at, asked for once. @param {{ w: any }} p */
function Nodes({ w }) {
  const [rows, set] = useState(/** @type {any[] | null} */ (null));
  const load = async () => {
    const answer = await fetch(`../v1/apps/${w.app}/why`).catch(() => null);
    const all = answer?.ok ? await answer.json() : [];
    set(all.find((/** @type {any} */ r) => r.request === w.request)?.nodes.slice(0, 20) ?? []);
  };
  if (!rows) return html`<button type="button" onClick=${load}>node by node</button>`;
  return rows.length ? html`<div class="scroll"><table class="rows"><thead><tr><th>node</th><th class="n">free</th><th class="n">of</th><th>why not</th></tr></thead><tbody>${rows.map((n) => html`<tr><td><a href=${to('node', n.node)}>${n.node}</a></td><td class="n">${bytes(n.free.memory)}</td><td class="n">${bytes(n.offers.memory)}</td><td>${n.verdict}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>No node refuses it any more.<//>`;
}

/** @param {{ rows: any[] }} p */
function Waits({ rows }) {
  if (!rows.length) return html`<${Empty}>✓ Nothing waits.<//>`;
  return rows.map((w) => html`<div class="wait" key=${`${w.app}/${w.request}`} data-wait=${w.app}><p><a href=${to('job', w.app)} data-row><b>${w.app}/${w.request}</b></a> <span class="hint">${w.queue} · ${count(w.missing, 'container')} of ${bytes(w.asks.memory)} · for <${Ago} at=${w.since} /></span></p><p>${w.sentence}</p>
    <div class="buttons"><${Nodes} w=${w} /><${Command} text=${`rmctl why ${w.app}`} /></div></div>`);
}

export function Page() {
  const b = board('queues').value;
  if (!b) return html`<${Waiting} />`;
  const rows = b.order.map((/** @type {string} */ path) => b[`queue:${path}`]).filter(Boolean);
  const whole = Math.max(1, rows[0]?.maximum.memory ?? 0);
  return html`<h1 class="unseen">Queues</h1>
    <${Card} id="queues" title="Queues" hint="▮ in use · ▯ waits · │ guaranteed · shade: the most it may have"><div class="scroll"><table class="rows"><thead><tr><th>queue</th><th>state</th><th class="wide">memory</th><th class="n">in use</th><th class="n">guaranteed</th><th class="n">jobs</th><th class="n">pending</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ q) => html`<tr key=${q.path}><td class="tree" style=${{ paddingLeft: `${0.4 + (q.path.split('.').length - 1) * 1.1}em` }}><a href=${to('queue', q.path)} data-row>${q.path.split('.').pop()}</a>${q.below_guarantee && q.pending ? html`<small class="warn">below its guarantee</small>` : ''}</td><td><${State} of=${q.state} /></td><td class="wide"><${Share} q=${q} whole=${whole} /></td><td class="n">${bytes(q.used.memory)}</td><td class="n">${q.guaranteed.memory ? bytes(q.guaranteed.memory) : '–'}</td><td class="n">${q.running}/${q.apps}</td><td class=${`n ${q.pending ? 'warn' : ''}`}>${q.pending}</td></tr>`)}</tbody></table></div>
      <${Twin} head=${['queue', 'in use', 'guaranteed', 'at most', 'waits']} rows=${rows.map((/** @type {any} */ q) => [q.path, bytes(q.used.memory), bytes(q.guaranteed.memory), bytes(q.maximum.memory), bytes(q.waiting.memory)])} /><//>
    <${Card} id="waits" title="Why it waits" hint="the one that waits longest comes first"><${Waits} rows=${b.waits} /><//>`;
}

/** @param {{ id: string }} p */
function One({ id }) {
  const b = board('queues').value;
  if (!b) return html`<${Waiting} />`;
  const q = b[`queue:${id}`];
  if (!q) return html`<${Nowhere} what=${`there is no queue ${id}`} />`;
  const waits = b.waits.filter((/** @type {any} */ w) => w.queue === id || w.queue.startsWith(`${id}.`));
  return html`<div class="title"><h1>${id}</h1><${State} of=${q.state} /><span class="hint">order ${q.spec.order ?? 'fifo'} · weight ${q.spec.weight ?? 1}${q.spec.preemptable === false ? ' · nothing is taken from it' : ''}</span></div>
    <div class="chips"><${Chip} figure=${bytes(q.used.memory)} what="in use" more=${`${q.used.cpus} cpus`} /><${Chip} figure=${q.guaranteed.memory ? bytes(q.guaranteed.memory) : 'none'} what="guaranteed" more=${q.below_guarantee ? 'it has less' : ''} tone=${q.below_guarantee && q.pending ? 'warn' : ''} /><${Chip} figure=${bytes(q.maximum.memory)} what="at most" more=${percentText(q.used.memory, q.maximum.memory)} /><${Chip} figure=${`${q.running} / ${q.apps}`} what="jobs running" /><${Chip} figure=${q.pending} what="containers pending" more=${q.waiting.memory ? bytes(q.waiting.memory) : ''} tone=${q.pending ? 'warn' : ''} /></div>
    ${q.children.length ? html`<${Card} id="children" title="Queues in it"><ul class="plain">${q.children.map((/** @type {string} */ path) => html`<li><a href=${to('queue', path)} data-row>${path}</a></li>`)}</ul><//>` : ''}
    <${Card} id="waits" title="Why it waits"><${Waits} rows=${waits} /><//>
    ${q.users?.length ? html`<${Card} id="users" title="Users"><table class="rows"><thead><tr><th>user</th><th class="n">jobs</th><th class="n">memory</th></tr></thead><tbody>${q.users.map((/** @type {any} */ u) => html`<tr><td>${u.user || 'unknown'}</td><td class="n">${u.apps}</td><td class="n">${bytes(u.used.memory)}</td></tr>`)}</tbody></table><//>` : ''}
    <${Card} id="next" title="Next"><${Command} text=${`rmctl queue show ${id}`} /><a href=${`#/jobs?find=${encodeURIComponent(id)}`}>jobs in this queue</a><//>`;
}

export const one = { topics, Page: One };
