// All jobs, the newest first.

import { html } from 'htm/preact';
import { Card, Empty, Waiting } from '../parts.js';
import { Jobs } from './overview.js';
import { ask } from '../route.js';
import { board } from '../stream.js';

export const topics = () => ['jobs'];
/** @param {URLSearchParams} query */
export const more = (query) => pick(query, ['from', 'find']);

/** @param {URLSearchParams} query @param {string[]} names @returns {Record<string, string>} */
export function pick(query, names) {
  return Object.fromEntries(names.filter((n) => query.get(n)).map((n) => [n, /** @type {string} */ (query.get(n))]));
}

/** Which piece is shown, and the others. @param {{ page: any }} p */
export function Pager({ page }) {
  const { from, of, rows } = page;
  const go = (/** @type {number} */ at) => ask({ from: at > 0 ? String(at) : '' });
  return html`<div class="pager"><span>${of ? `${from + 1}–${Math.min(of, from + rows)} of ${of.toLocaleString('en')}` : 'none'}</span>
    <button type="button" disabled=${from === 0} onClick=${() => go(0)}>|◀<span class="unseen">first</span></button><button type="button" disabled=${from === 0} onClick=${() => go(from - rows)}>◀<span class="unseen">previous</span></button>
    <button type="button" disabled=${from + rows >= of} onClick=${() => go(from + rows)}>▶<span class="unseen">next</span></button></div>`;
}

/** A field that narrows a list. @param {{ query: URLSearchParams, label: string }} p */
export function Find({ query, label }) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const find = (/** @type {Event} */ event) => {
    const value = /** @type {HTMLInputElement} */ (event.target).value;
    clearTimeout(timer);
    timer = setTimeout(() => ask({ find: value.trim(), from: '' }), 200);
  };
  return html`<input type="search" class="find" placeholder="filter   /" aria-label=${label} value=${query.get('find') ?? ''} onInput=${find} spellcheck="false" />`;
}

/** @param {{ query: URLSearchParams }} p */
export function Page({ query }) {
  const b = board('jobs').value;
  if (!b) return html`<${Waiting} />`;
  const rows = b.page.ids.map((/** @type {string} */ id) => b[`app:${id}`]).filter(Boolean);
  return html`<h1 class="unseen">Jobs</h1><${Card} id="jobs" title="Jobs" actions=${html`<${Find} query=${query} label="filter jobs" /><${Pager} page=${b.page} />`}>
    ${rows.length ? html`<${Jobs} rows=${rows} />` : html`<${Empty}>${b.page.all ? 'No job matches the filter.' : 'No job yet.'} <code>rmctl submit FILE --follow</code><//>`}<//>`;
}
