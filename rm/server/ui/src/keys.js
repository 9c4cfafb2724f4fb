// The page by keyboard.

import { html } from 'htm/preact';
import { signal } from '@preact/signals';
import { resolve, to } from './route.js';

const GO = /** @type {Record<string, string>} */ ({ o: 'overview', n: 'nodes', q: 'queues', j: 'jobs', e: 'events', s: 'sizes', p: 'profiles', a: 'audit' });
export const help = signal(false);
let going = -Infinity;

/** @param {number} step */
function walk(step) {
  const rows = /** @type {HTMLElement[]} */ ([...document.querySelectorAll('main [data-row]')]);
  if (!rows.length) return;
  const at = rows.indexOf(/** @type {HTMLElement} */ (document.activeElement));
  const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  next.focus();
  next.scrollIntoView({ block: 'nearest' });
}

addEventListener('keydown', (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.key === 'Escape') {
    help.value = false;
    target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
  if (performance.now() - going < 1500 && GO[event.key]) {
    going = -Infinity;
    location.hash = to(GO[event.key]);
  } else if (event.key === 'g') going = performance.now();
  else if (event.key === 'j') walk(1);
  else if (event.key === 'k') walk(-1);
  else if (event.key === '?') help.value = !help.value;
  else if (event.key === 't') for (const twin of document.querySelectorAll('details.twin')) /** @type {HTMLDetailsElement} */ (twin).open = !(/** @type {HTMLDetailsElement} */ (twin).open);
  else if (event.key === '/') /** @type {HTMLElement | null} */ (document.querySelector('main input[type=search], header input[type=search]'))?.focus();
  else return;
  event.preventDefault();
});

/** A field that leads to any id. */
export function GoTo() {
  const go = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (/** @type {HTMLFormElement} */ (event.target).elements[0]);
    if (field.value.trim()) location.hash = resolve(field.value);
    field.value = '';
    field.blur();
  };
  return html`<form class="goto" onSubmit=${go} role="search"><input type="search" placeholder="job, task, node…   /" aria-label="go to a job, task, container, queue or node by its id" spellcheck="false" /></form>`;
}

/** The list of keys. */
export function Help() {
  if (!help.value) return null;
  const rows = [['j  k', 'next and previous row'], ['Enter', 'open it'], ['/', 'search, or go to an id'], ['g o', 'overview'], ['g n', 'nodes'], ['g q', 'queues'], ['g j', 'jobs'], ['g e', 'events'], ['g s', 'sizes'], ['g p', 'profiles'], ['g a', 'audit log'], ['t', 'all charts as tables'], ['?', 'this list'], ['Esc', 'close']];
  return html`<div class="veil" onClick=${() => (help.value = false)}><div class="card help" role="dialog" aria-label="keys" aria-modal="true">
    <h2>Keys</h2><dl>${rows.map(([key, what]) => html`<div><dt>${key.split(' ').filter(Boolean).map((k) => html`<kbd>${k}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl></div></div>`;
}
