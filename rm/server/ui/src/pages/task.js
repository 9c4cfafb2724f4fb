// One task: memory over all its attempts, the verdict on each, and what would cure it.

import { html } from 'htm/preact';
import { useMemo, useState } from 'preact/hooks';
import { Ago, Card, Command, Empty, Nowhere, State, Twin, Waiting, endOf } from '../parts.js';
import { Chart, across } from '../chart.js';
import { Ladder } from '../ladder.js';
import { bytes, clock, count, fineClock, percentText, span } from '../format.js';
import { to } from '../route.js';
import { past, points } from '../history.js';
import { board, missing, now } from '../stream.js';

/** @param {string} id */
export const topics = (id) => [`task:${id.replace(/@\d+$/, '')}`];

/** @param {any} a */
const size = (a) => a.profile.heap + a.profile.overhead;
const SURE = /** @type {Record<string, string>} */ ({ certain: 'certain', likely: 'likely', possible: 'possible' });

/** @param {any} t */
const treatment = (t) => [t.treatment, t.quantity === 'native' ? 'memory' : t.quantity, t.remedy].filter(Boolean).join(' ');

/** What the verdict was decided from. @param {{ a: any }} p */
function Evidence({ a }) {
  const e = a.evidence;
  if (!e) return html`<${Empty}>${a.ended ? (a.charge === 'success' ? 'No evidence is kept of a successful attempt.' : 'No evidence was kept.') : 'It has not ended.'}<//>`;
  const stat = e.own.stat;
  const kinds = [['anonymous', stat.anon], ['file', stat.file], ['shared', stat.shmem], ['kernel', stat.kernel], ['sockets', stat.sock]].filter(([, n]) => n);
  const local = e.own.local;
  const rows = [
    ['limit', bytes(e.own.limit)],
    ['peak', bytes(e.own.peak ?? a.peak)],
    ['at the end', `${bytes(e.own.current)}${kinds.length ? `: ${kinds.map(([name, n]) => `${name} ${bytes(/** @type {number} */ (n))}`).join(', ')}` : ''}`],
    ['counters', `max ${local.max} · oom ${local.oom} · oom_kill ${local.oom_kill} · oom_group_kill ${local.oom_group_kill}`],
    ['outer levels', e.outer.length ? `kills: ${e.outer.map((/** @type {any} */ o) => `${o.level} ${o.local.oom_kill}`).join(' · ')}` : 'not measured'],
    ['heap', e.heap ? `${bytes(e.heap.used)} of ${bytes(e.heap.max)}${e.heap_budget ? `, budget ${bytes(e.heap_budget)}` : ''}` : e.heap_budget ? `budget ${bytes(e.heap_budget)}; the runtime reported nothing` : 'no managed runtime'],
    ['marker', e.heap_marker],
    ['ended by', e.signal !== null && e.signal !== undefined ? `signal ${e.signal}` : e.exit_code !== null && e.exit_code !== undefined ? `exit code ${e.exit_code}` : null],
    ['processes', e.victims.length ? e.victims.map((/** @type {any} */ v) => `${v.name} (${v.pid}) ${bytes(v.rss)}`).join(', ') : null],
    ['enforcer', `${e.enforcer}${e.enforcer === 'poll' ? ' (not kernel-enforced)' : ''}`],
    ['could not be read', e.missing.length ? e.missing.join(', ') : null],
  ].filter(([, value]) => value);
  return html`<dl class="facts" data-evidence=${a.attempt}>${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @param {{ app: string, a: any }} p */
function Log({ app, a }) {
  const [text, set] = useState(/** @type {string | null} */ (null));
  const name = a.attempt.replace(/[/@]/g, '-');
  const load = async (/** @type {string} */ kind) => {
    set('…');
    const answer = await fetch(`../v1/containers/${a.container}/logs/${name}.${kind}?tail=16384`).catch(() => null);
    set(answer?.ok ? (await answer.text()) || '(empty)' : 'The log is no longer there, or its node does not answer.');
  };
  const tail = text ?? a.log_tail;
  return html`${tail ? html`<pre class="log" tabindex="0" aria-label="the end of its log">${tail}</pre>` : html`<${Empty}>No output on standard error was reported.<//>`}
    <div class="buttons"><button type="button" onClick=${() => load('err')}>standard error</button><button type="button" onClick=${() => load('out')}>standard output</button></div>
    <${Command} text=${`rmctl logs ${app}/${a.attempt} --stderr --tail 50`} />`;
}

/** @param {{ app: string, a: any }} p */
function Verdict({ app, a }) {
  const [glyph, tone] = endOf(a.charge);
  const ran = span((a.ended ?? now.value) - a.started);
  const first = a.diagnosis[0];
  return html`<div class=${`verdict ${tone}`} data-verdict=${a.verdict ?? 'running'} data-attempt=${a.attempt}>
    <p class="line"><i aria-hidden="true">${glyph}</i><b>${a.verdict ?? 'running'}</b>${a.sentence ? html`<span>${a.sentence}</span>` : html`<span>in use ${bytes(a.used)} of ${bytes(size(a))}</span>`}</p>
    <p>${a.attempt} in <a href=${to('container', a.container)}>${a.container}</a> on <a href=${to('node', a.node)}>${a.node}</a>, ${a.ended ? html`${clock(a.started)}–${fineClock(a.ended)} UTC, ran ${ran}` : html`since ${clock(a.started)} UTC, ${ran}`}; limit <b>${bytes(size(a))}</b>${a.profile.overhead ? ` (heap ${bytes(a.profile.heap)} + ${bytes(a.profile.overhead)})` : ''}${a.dimension ? html`; <b>${a.dimension}</b> ran out` : ''}${a.peak && a.ended ? `; peak ${bytes(a.peak)}, ${percentText(a.peak, size(a))}` : ''}.</p>
    ${a.grown?.length ? html`<p>▲ Grew while it ran: ${a.grown.map((/** @type {any} */ g) => `${bytes(g.from)} → ${bytes(g.to)} at ${clock(g.at)}${g.frozen_us ? `, frozen ${span(g.frozen_us / 1000)}` : ''}`).join('; ')}.</p>` : ''}
    ${a.treatment ? html`<p data-treatment=${a.treatment.treatment}><b>Treatment:</b> ${treatment(a.treatment)} for ${a.treatment.cause}</p>` : ''}
    ${a.decision ? html`<p><b>Then:</b> ${a.decision}</p>` : ''}
    ${a.why ? html`<p class="hint">Its size: ${a.why}</p>` : ''}
    ${first ? html`<p class="cause"><b>${first.cause}</b> <span class="hint">${first.name}, ${SURE[first.certainty] ?? first.certainty}</span></p>` : ''}</div>`;
}

/** @param {{ app: string, a: any }} p */
function Fixes({ app, a }) {
  if (!a.diagnosis.length) return html`<${Empty}>${a.charge === 'memory' ? 'No cheaper cure is known than more memory.' : 'There is nothing to cure.'}<//><${Command} text=${`rmctl diagnose ${app}/${a.attempt}`} />`;
  return html`<ol class="fixes">${a.diagnosis.map((/** @type {any} */ d) => html`<li><p><b>${d.cause}</b> <span class="hint">${d.name}, ${d.certainty}</span></p><${Command} label="fix" text=${d.fix} />
    <p class="hint">price: ${d.trade_off}${d.would_fit ? ` · would have fitted in ${bytes(d.would_fit)}` : ''}</p></li>`)}</ol><${Command} text=${`rmctl diagnose ${app}/${a.attempt}`} />`;
}

/** @param {{ id: string, query: URLSearchParams }} p */
export function Page({ id: asked, query }) {
  const id = asked.replace(/@\d+$/, '');
  const app = id.slice(0, id.indexOf('/'));
  const b = board(`task:${id}`).value;
  const gone = missing(`task:${id}`).value;
  const [chosen, choose] = useState(0);
  const attempts = b ? Object.entries(b).filter(([name]) => name.startsWith('attempt:')).map(([, a]) => a).sort((x, y) => x.n - y.n || Number(x.attempt.split('@')[1]) - Number(y.attempt.split('@')[1])) : [];
  const live = attempts.some((a) => !a.ended);
  const lines = useMemo(() => across(attempts, (a) => past(`${app}/${a.attempt}`), Date.now()), [b, points.value, live ? now.value : 0]);
  if (gone) return html`<${Nowhere} what=${gone} />`;
  if (!b) return html`<${Waiting} />`;
  const number = (/** @type {any} */ a) => Number(a.attempt.split('@')[1]);
  const want = chosen || Number(query.get('attempt') ?? asked.split('@')[1] ?? 0);
  const told = attempts.filter((a) => a.charge === 'memory' || a.charge === 'plain');
  const shown = attempts.find((a) => number(a) === want) ?? told[told.length - 1] ?? attempts[attempts.length - 1];
  const kills = attempts.filter((a) => a.charge === 'memory').length;
  const row = b.row;
  return html`<div class="title"><h1><a href=${to('job', app)}>${app}</a> / ${row.task}</h1><${State} of=${row.state} /><span class="hint">${count(attempts.length, 'attempt')} · rung ${row.rung} · now ${bytes(row.heap + row.overhead)}${row.overhead ? ` (heap ${bytes(row.heap)} + ${bytes(row.overhead)})` : ''}${kills ? ` · killed ${kills === 1 ? 'once' : `${kills} times`} for memory` : ''}</span></div>
    ${row.frozen ? html`<p class="note">frozen for ${bytes(row.frozen.more)} more since ${clock(row.frozen.since)}: its node has no free memory</p>` : ''}
    ${row.note ? html`<p class="note">${row.note}</p>` : ''}
    ${b.waits?.length ? html`<div class="note">${b.waits.slice(0, 3).map((/** @type {any} */ w) => html`<p>${w.request} waits <${Ago} at=${w.since} />: ${w.sentence}</p>`)}</div>` : ''}
    <${Card} id="timeline" title="Memory" hint="all attempts on one axis, from the start of the first">${attempts.length ? html`<${Chart} lines=${lines} label=${`memory of ${id}`} />
      <${Twin} head=${['attempt', 'began', 'ran', 'limit', 'peak', 'end', 'ran out', 'treatment', 'node']} rows=${attempts.map((a) => [a.attempt, clock(a.started), span((a.ended ?? now.value) - a.started), bytes(size(a)), bytes(a.peak), a.verdict ?? 'running', a.dimension ?? '–', a.treatment ? treatment(a.treatment) : '–', a.node])} />` : html`<${Empty}>The task has not started.<//>`}<//>
    <${Card} id="ladder" title="Escalation ladder"><${Ladder} rows=${[{ app, row }]} /><//>
    ${shown ? html`<div class="two"><${Card} id="verdict" title="Verdict" actions=${html`<span class="switch" role="group" aria-label="which attempt">${attempts.slice(-8).map((a) => html`<button type="button" aria-pressed=${a === shown} onClick=${() => choose(number(a))}>@${number(a)}</button>`)}</span>`}><${Verdict} app=${app} a=${shown} /><h3>Evidence</h3><${Evidence} a=${shown} /><//>
      <${Card} id="fix" title="Fix"><${Fixes} app=${app} a=${shown} /><h3>Log</h3><${Log} key=${shown.attempt} app=${app} a=${shown} /><//></div>` : ''}`;
}
