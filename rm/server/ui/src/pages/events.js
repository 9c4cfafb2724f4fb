// What happened, as it happens.

import { html } from 'htm/preact';
import { Card, Empty, Waiting } from '../parts.js';
import { Find, pick } from './jobs.js';
import { fineClock } from '../format.js';
import { ask, resolve } from '../route.js';
import { events, eventsKnown } from '../stream.js';

export const topics = () => ['events'];
/** @param {URLSearchParams} query */
export const more = (query) => pick(query, ['find', 'level', 'app']);

/** @param {any} e */
function link(e) {
  if (e.app && /^[^/]+\/\d+(@\d+)?$/.test(e.object)) return resolve(`${e.app}/${e.object}`);
  if (e.object.startsWith('root')) return resolve(e.object);
  return e.app && !/\.c\d+$/.test(e.object) ? resolve(e.app) : resolve(e.object);
}

const GLYPHS = /** @type {Record<string, string>} */ ({ OomKilled: '✗', TaskFailed: '✗', EscalationExhausted: '✗', Escalated: '▲', TaskGrown: '▲', TaskFinished: '✓', JobFinished: '✓' });

/** Rows, the newest first. @param {{ rows: any[] }} p */
export function Events({ rows }) {
  return html`<ol class="events">${[...rows].reverse().map((e) => html`<li key=${e.index} class=${`${e.level} ${e.reason}`} data-event=${e.reason} data-index=${e.index} data-time=${e.time}>
    <time datetime=${new Date(e.time).toISOString()}>${fineClock(e.time)}</time><i aria-hidden="true">${GLYPHS[e.reason] ?? (e.level === 'warning' ? '!' : '·')}</i><b>${e.reason}</b>
    <a href=${link(e)} data-row>${e.app && !e.object.startsWith(e.app) ? `${e.app}/` : ''}${e.object}</a><span>${e.message}</span></li>`)}</ol>`;
}

/** @param {{ query: URLSearchParams }} p */
export function Page({ query }) {
  const level = query.get('level') ?? '';
  const app = query.get('app') ?? '';
  const choose = (/** @type {string} */ name, /** @type {string} */ word) => html`<button type="button" aria-pressed=${level === name} onClick=${() => ask({ level: name })}>${word}</button>`;
  return html`<h1 class="unseen">Events</h1><${Card} id="events" title="Events" hint=${app ? html`of <a href=${resolve(app)}>${app}</a> · <button type="button" onClick=${() => ask({ app: '' })}>of all</button>` : 'the newest first'} actions=${html`<span class="switch" role="group" aria-label="level">${choose('', 'all')}${choose('warning', 'warnings')}</span><${Find} query=${query} label="filter events" />`}>
    ${!eventsKnown.value ? html`<${Waiting} />` : events.value.length ? html`<${Events} rows=${events.value} />` : html`<${Empty}>No event matches since the start of the resource manager.<//>`}<//>`;
}
