// One job: its stages as squares, the ladder, what waits.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { Ago, Card, Chip, Command, Empty, Histogram, Nowhere, State, Twin, Waiting } from '../parts.js';
import { Ladder } from '../ladder.js';
import { bytes, clock, count, percentText, span, work } from '../format.js';
import { to } from '../route.js';
import { board, events, missing, now } from '../stream.js';
import { Events } from './events.js';

/** @param {string} id */
export const topics = (id) => [`job:${id}`, 'events'];
/** @param {URLSearchParams} _query @param {string} id */
export const more = (_query, id) => ({ app: id });

const WORDS = /** @type {Record<string, string>} */ ({ b: 'blocked', p: 'pending', r: 'running', d: 'done', f: 'failed' });
const GLYPHS = /** @type {Record<string, string>} */ ({ b: '', p: '…', r: '▸', d: '', f: '✗' });
const MOST = 2000;

/** One square a task. @param {{ id: string, stage: any }} p */
function Grid({ id, stage }) {
  const squares = /** @type {string} */ (stage.squares).slice(0, MOST);
  const states = Object.entries(stage.states).map(([name, n]) => `${n} ${name}`).join(', ');
  return html`<div class=${`grid ${squares.length > 300 ? 'small' : ''}`} role="group" aria-label=${`tasks of ${stage.name}: ${states}`}>
    ${[...squares].map((c, i) => {
      const low = c.toLowerCase();
      const words = `${stage.name}/${i}: ${WORDS[low]}${c !== low ? ', given another size' : ''}`;
      return html`<a key=${i} class=${`${WORDS[low]} ${c !== low ? 'told' : ''}`} href=${to('task', `${id}/${stage.name}/${i}`)} title=${words} aria-label=${words}>${c !== low ? '▴' : GLYPHS[low]}</a>`;
    })}
    ${stage.tasks > MOST ? html`<span class="more">and ${(stage.tasks - MOST).toLocaleString('en')} more</span>` : ''}</div>`;
}

/** @param {{ id: string, stage: any }} p */
function Stage({ id, stage }) {
  const size = stage.first.heap + stage.first.overhead;
  const ended = stage.peaks.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
  const half = stage.peaks.slice(0, 10).reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b, 0);
  return html`<div class="stage"><div><h3>${stage.name} <span class="hint">${count(stage.tasks, 'task')} · begins with ${bytes(size)}${stage.first.overhead ? ` (heap ${bytes(stage.first.heap)} + ${bytes(stage.first.overhead)})` : ''}</span></h3>
      <${Grid} id=${id} stage=${stage} />
      <${Twin} head=${['state', 'tasks']} rows=${Object.entries(stage.states)} /></div>
    <div>${ended ? html`<${Histogram} bars=${stage.peaks} label="peak against limit" tone=${(/** @type {number} */ i) => (i >= 19 ? 'bad' : i >= 10 ? 'use' : 'dim')} /><p class="hint">${half * 2 > ended ? `${percentText(half, ended)} of attempts used less than half of their limit` : `${count(stage.kills, 'memory kill')}`}</p>` : html`<${Empty}>No attempt has ended.<//>`}</div></div>`;
}

/** @param {{ t: any, app: any }} p */
function Chips({ t, app }) {
  const end = app.ended ?? now.value;
  return html`<div class="chips">
    <${Chip} name="done" figure=${`${t.done} / ${t.tasks}`} what="tasks done" more=${t.failed ? `${t.failed} failed` : t.running ? `${t.running} running` : ''} tone=${t.failed ? 'bad' : t.done === t.tasks ? 'good' : ''} />
    <${Chip} name="kills" figure=${t.memory_kills} what="memory kills" more=${`mode ${t.mode}`} tone=${t.memory_kills ? 'bad' : ''} />
    <${Chip} name="escalated" figure=${t.escalated} what="tasks given more" more=${t.grown ? `${t.grown} while they ran` : 'after a kill'} />
    <${Chip} name="collateral" figure=${t.collateral_reruns} what="collateral reruns" more=${t.transient ? `${t.transient} lost by the platform` : 'none lost by the platform'} />
    <${Chip} name="rerun" figure=${work(t.rerun_byte_s)} what="run again" more=${`${percentText(t.rerun_byte_s, t.allocated_byte_s)} of ${work(t.allocated_byte_s)}`} />
    <${Chip} name="time" figure=${span(end - app.submitted)} what=${app.ended ? 'from submission to end' : 'since submission'} more=${clock(app.submitted)} />
  </div>`;
}

/** @param {{ id: string }} p */
export function Page({ id }) {
  const [kind, set] = useState('told');
  const b = board(`job:${id}`).value;
  const gone = missing(`job:${id}`).value;
  if (gone) return html`<${Nowhere} what=${gone} />`;
  if (!b) return html`<${Waiting} />`;
  const app = b.app;
  const tasks = Object.entries(b).filter(([name]) => name.startsWith('task:')).map(([, row]) => row);
  const told = tasks.filter((r) => r.rung > 1 || r.attempts.length > 1 || r.state === 'failed' || r.attempts.some((/** @type {any} */ a) => a.charge === 'memory' || a.grown.length));
  const running = tasks.filter((r) => r.state === 'running' || r.state === 'pending');
  const shown = (kind === 'told' ? told : running).sort((x, y) => (x.task < y.task ? -1 : 1)).map((row) => ({ app: id, row }));
  return html`<div class="title"><h1>${id}</h1><${State} of=${app.state} /><span class="hint">queue <a href=${to('queue', app.queue)}>${app.queue}</a> · ${app.user || 'unknown'} · ${app.managed ? 'managed master' : 'master beside its user'}, run ${app.attempt} · ${count(app.containers, 'container')}</span></div>
    ${app.diagnostics ? html`<p class="note">${app.diagnostics}</p>` : ''}
    ${b.totals ? html`<${Chips} t=${b.totals} app=${app} />` : html`<${Card} id="no-tasks" title="Tasks"><${Empty}>Its master has not reported any task.<//><//>`}
    ${b.stages?.length ? html`<${Card} id="tasks" title="Tasks" hint="one square a task · ▴ given another size · ▸ running · ✗ failed">${b.stages.map((/** @type {string} */ name) => html`<${Stage} key=${name} id=${id} stage=${b[`stage:${name}`]} />`)}<//>` : ''}
    ${b.totals ? html`<${Card} id="ladder" title="Escalation ladder" hint=${b.lines && b.lines.of > b.lines.shown ? `${b.lines.shown} of ${b.lines.of} tasks that are worth a line` : ''}
      actions=${html`<span class="switch" role="group" aria-label="which tasks"><button type="button" aria-pressed=${kind === 'told'} onClick=${() => set('told')}>needed more (${told.length})</button><button type="button" aria-pressed=${kind === 'running'} onClick=${() => set('running')}>under way (${running.length})</button></span>`}>
      ${shown.length ? html`<${Ladder} rows=${shown} />` : html`<${Empty}>${kind === 'told' ? '✓ No task has needed more than it was given.' : 'No task is running.'}<//>`}<//>` : ''}
    ${b.waits?.length ? html`<${Card} id="waits" title="Why it waits">${b.waits.map((/** @type {any} */ w) => html`<div class="wait" key=${w.request}><p><b>${w.request}</b> ${count(w.missing, 'container')} of ${bytes(w.asks.memory)}, for <${Ago} at=${w.since} />: ${w.sentence}</p><${Command} text=${`rmctl why ${id}`} /></div>`)}<//>` : ''}
    <${Card} id="next" title="Next"><${Command} text=${`rmctl ps ${id}`} /><${Command} text=${`rmctl diagnose ${id}`} /><${Command} text=${`rmctl job suggest ${id.replace(/\.\d+$/, '')}`} /><//>
    <${Card} id="events" title="Events of this job" actions=${html`<a href=${`#/events?app=${encodeURIComponent(id)}`}>all of them</a>`}>${events.value.length ? html`<${Events} rows=${events.value.slice(-40)} />` : html`<${Empty}>The log no longer contains events of this job.<//>`}<//>`;
}
