// Who changed what, as it happens.

import { html } from 'htm/preact';
import { Card, Empty, Waiting } from '../parts.js';
import { Find, Pager, pick } from './jobs.js';
import { fineClock } from '../format.js';
import { to } from '../route.js';
import { board } from '../stream.js';

export const topics = () => ['audit'];
/** @param {URLSearchParams} query */
export const more = (query) => pick(query, ['from', 'find']);

const PAGES = /** @type {Record<string, string>} */ ({ apps: 'job', nodes: 'node', queues: 'queue', containers: 'container' });

/** Where the thing is shown, if it is. @param {string} object */
function link(object) {
  const [kind, id] = object.split('/');
  return id && PAGES[kind] ? to(PAGES[kind], id) : '';
}

/** How it was and how it is. @param {{ line: any }} p */
function Change({ line }) {
  if (line.before && line.after) return html`<span><s>${line.before}</s> → ${line.after}</span>`;
  return html`<span>${line.after ?? line.before ?? ''}</span>`;
}

/** @param {{ line: any }} p */
function Row({ line }) {
  const refused = line.outcome >= 400;
  const where = link(line.object);
  return html`<tr data-audit=${line.index} class=${refused ? 'refused' : ''}>
    <td><time datetime=${new Date(line.time).toISOString()}>${fineClock(line.time)}</time></td><td>${line.who}</td><td>${line.verb}</td>
    <td>${where ? html`<a href=${where} data-row>${line.object}</a>` : line.object}<small><${Change} line=${line} /></small></td>
    <td class=${`n ${refused ? 'bad' : 'good'}`}><i aria-hidden="true">${refused ? '✗' : '✓'}</i> ${line.outcome}${line.code ? html` <code>${line.code}</code>` : ''}</td><td><code>${line.request}</code></td></tr>`;
}

/** @param {{ query: URLSearchParams }} p */
export function Page({ query }) {
  const b = board('audit').value;
  if (!b) return html`<${Waiting} />`;
  const lines = /** @type {any[]} */ (b.lines);
  return html`<h1 class="unseen">Audit log</h1><${Card} id="audit" title="Audit log" hint="changing calls, newest first" actions=${html`<${Find} query=${query} label="filter changes" /><${Pager} page=${b.page} />`}>
    ${lines.length ? html`<div class="scroll"><table class="rows"><thead><tr><th scope="col">when</th><th scope="col">caller</th><th scope="col">call</th><th scope="col">object</th><th scope="col" class="n">answer</th><th scope="col">request</th></tr></thead><tbody>${lines.map((line) => html`<${Row} key=${line.index} line=${line} />`)}</tbody></table></div>` : html`<${Empty}>${b.page.all ? 'No call matches the filter.' : 'No call has changed anything yet.'}<//>`}<//>`;
}
