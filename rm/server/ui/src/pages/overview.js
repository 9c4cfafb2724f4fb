// The cluster on one screen.

import { html } from 'htm/preact';
import { Ago, Card, Chip, Command, Empty, Histogram, Meter, State, Waiting } from '../parts.js';
import { Topology } from '../topology.js';
import { Ladder } from '../ladder.js';
import { bytes, clock, count, percentText, ratio, span, work } from '../format.js';
import { resolve, to } from '../route.js';
import { board, now } from '../stream.js';

export const topics = () => ['overview'];

/** @param {{ b: any }} p */
function Chips({ b }) {
  const s = b.status;
  const f = b.figures;
  const [allocated, unit] = ratio(s.allocated, s.memory);
  const states = Object.entries(b.fleet.states).filter(([name]) => name !== 'ready').map(([name, n]) => `${n} ${name}`).join(', ');
  const wait = b.waits[0];
  return html`<div class="chips">
    <${Chip} name="nodes" href="#/nodes" figure=${s.nodes.toLocaleString('en')} what=${s.nodes === 1 ? 'node' : 'nodes'} more=${states || 'all ready'} tone=${states ? 'warn' : ''} />
    <${Chip} name="containers" href="#/jobs" figure=${s.containers.toLocaleString('en')} what=${s.containers === 1 ? 'container' : 'containers'} more=${s.pending ? `${s.pending.toLocaleString('en')} pending` : 'none pending'} />
    <${Chip} name="allocated" figure=${allocated} unit=${unit} what="allocated" more=${percentText(s.allocated, s.memory)} />
    <${Chip} name="used" figure=${bytes(s.used)} what="in use" more=${`${percentText(s.used, s.allocated)} of granted`} />
    <${Chip} name="kills" href="#/events?find=OomKilled" figure=${s.oom_1h} what="memory kills, 1 h" more=${f.grown ? `${f.grown} grown before a kill` : `${count(f.running, 'task')} running`} tone=${s.oom_1h ? 'bad' : ''} />
    <${Chip} name="recovered" figure=${`${f.recovered} / ${f.killed_tasks}`} what="recovered" more=${f.given_up ? `${f.given_up} given up` : f.going_on ? `${f.going_on} on their way` : `${work(f.rerun_byte_s)} run again`} tone=${f.given_up ? 'bad' : f.recovered ? 'good' : ''} />
    <${Chip} name="wait" href="#/queues" figure=${wait ? span(now.value - wait.since) : '0 s'} what="longest wait" more=${wait ? `${wait.app}: needs ${bytes(wait.asks.memory)}` : 'nothing waits'} tone=${wait && now.value - wait.since > 60_000 ? 'warn' : ''} />
  </div>`;
}

/** @param {{ lines: any[] }} p */
function Attention({ lines }) {
  if (!lines.length) return html`<${Empty}>✓ Nothing needs attention.<//>`;
  const link = (/** @type {any} */ l) => (l.kind === 'nodes' ? '#/nodes?sort=state' : l.kind === 'wait' ? '#/queues' : l.kind === 'queue' ? to('queue', l.id) : resolve(l.id));
  const glyph = (/** @type {any} */ l) => (l.level === 'event' ? (l.reason === 'OomKilled' ? '✗' : '!') : l.level === 'warning' ? '!' : '·');
  return html`<ul class="attention">${lines.map((l) => html`<li class=${`${l.level} ${l.reason ?? ''}`} key=${`${l.kind}${l.id}${l.at ?? ''}${l.text}`} data-reason=${l.reason}>
    <i aria-hidden="true">${glyph(l)}</i><a href=${link(l)} data-row>${l.at ? html`<time>${clock(l.at)}</time> ` : ''}${l.reason ? html`<b>${l.reason}</b> ` : ''}${l.text}${l.since ? html` <small>for <${Ago} at=${l.since} /></small>` : ''}</a>
    ${l.level === 'event' ? '' : html`<${Command} text=${l.type} />`}</li>`)}</ul>`;
}

/** @param {{ b: any }} p */
function Fleet({ b }) {
  return html`<${Card} id="fleet" title="How full the nodes are" hint=${`${count(b.status.nodes, 'node')} · the largest free piece is ${bytes(b.fleet.largest_free)}`}>
    <div class="two"><${Histogram} bars=${b.fleet.granted} label="granted" /><${Histogram} bars=${b.fleet.used} label="in use" tone=${(/** @type {number} */ i) => (i >= 18 ? 'bad' : 'use')} /></div>
    ${b.racks.length ? html`<h3>Racks ${b.racks[0].of > b.racks.length ? html`<span class="hint">the ${b.racks.length} fullest of ${b.racks[0].of}</span>` : ''}</h3>
      <div class="racks">${b.racks.map((/** @type {any} */ r) => html`<a href=${`#/nodes?find=${encodeURIComponent(r.rack)}`} data-row key=${r.rack}><b>${r.rack || '(none)'}</b><small>${count(r.nodes, 'node')}${r.not_ready ? ` · ${r.not_ready} not ready` : ''}</small><${Meter} granted=${r.allocated} used=${r.used} whole=${r.memory} /></a>`)}</div>` : ''}
  <//>`;
}

/** Rows of jobs. @param {{ rows: any[] }} p */
export function Jobs({ rows }) {
  return html`<div class="scroll"><table class="rows"><thead><tr><th>job</th><th>state</th><th>tasks</th><th class="n">kills</th><th class="n">escalated</th><th class="n">memory</th><th class="n hide">age</th></tr></thead>
    <tbody>${rows.map((a) => html`<tr key=${a.id}><td><a href=${to('job', a.id)} data-row>${a.id}</a><small>${a.queue} · ${a.user || 'unknown'}</small></td><td><${State} of=${a.state} title=${a.diagnostics} /></td>
      <td>${a.totals ? html`<${Progress} t=${a.totals} />` : html`<small class="said" title=${a.diagnostics}>${a.diagnostics || '–'}</small>`}</td><td class=${`n ${a.totals?.memory_kills ? 'bad' : ''}`}>${a.totals?.memory_kills ?? '–'}</td><td class="n">${a.totals?.escalated ?? '–'}</td>
      <td class="n">${a.memory ? bytes(a.memory) : '–'}</td><td class="n hide">${a.ended ? span(a.ended - a.submitted) : html`<${Ago} at=${a.submitted} />`}</td></tr>`)}</tbody></table></div>`;
}

/** @param {{ t: any }} p */
export function Progress({ t }) {
  const part = (/** @type {number} */ n) => ({ width: `${t.tasks ? (100 * n) / t.tasks : 0}%` });
  const text = `${t.done} of ${t.tasks} done, ${t.running} running, ${t.failed} failed`;
  return html`<span class="progress" role="img" aria-label=${text} title=${text}><i class="good" style=${part(t.done)}></i><i class="bad" style=${part(t.failed)}></i><i class="live" style=${part(t.running)}></i></span><small>${t.done}/${t.tasks}</small>`;
}

/** The page. */
export function Page() {
  const b = board('overview').value;
  if (!b) return html`<${Waiting} />`;
  const nodes = Object.entries(b).filter(([name]) => name.startsWith('node:')).map(([, node]) => node).sort((x, y) => x.place - y.place);
  const all = nodes.length === b.status.nodes;
  return html`<h1 class="unseen">Overview</h1><${Chips} b=${b} />
    ${all && nodes.length < 8 ? '' : html`<${Fleet} b=${b} />`}
    <${Card} id="topology" title="Topology" hint=${`bar width = node memory · ${all ? 'all nodes' : `the ${nodes.length} that are fullest or not ready`} · enforcer ${b.status.enforcers.join(', ') || '–'}${b.status.enforcers.includes('poll') ? ' (not kernel-enforced)' : ''}`}>
      ${nodes.length ? html`<${Topology} nodes=${nodes} />` : html`<${Empty}>No node has registered. Start one with <code>nodeagent --rm ${location.origin}</code>.<//>`}<//>
    <div class="two"><${Card} id="attention" title="Attention"><${Attention} lines=${b.attention} /><//>
      <${Card} id="ladders" title="Escalation ladder" hint="tasks of live jobs that needed more">${b.ladders.length ? html`<${Ladder} rows=${b.ladders} long />` : html`<${Empty}>No task of a live job has needed more than it was given.<//>`}<//></div>
    <${Card} id="jobs" title="Jobs" actions=${html`<a href="#/jobs">all jobs</a>`}>${b.jobs.length ? html`<${Jobs} rows=${b.jobs} />` : html`<${Empty}>No job yet. <code>rmctl submit FILE --follow</code><//>`}<//>`;
}
