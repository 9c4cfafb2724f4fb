// Where callers are asked who they are: a token, which the browser then shows by itself and no script can read.

import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { locked, refusal, report } from './stream.js';

/** @typedef {{ who?: string | null, token?: any, rights: string[] }} Self */

/** Who this browser is to the resource manager; null until that is known. */
const self = signal(/** @type {Self | null} */ (null));
/** Why the token that this browser has does not hold; empty when it has none, or one that does. */
const stale = signal('');

/** @param {Response | null} answer @param {string} otherwise @returns {Promise<string>} why something was refused, in the words of whoever refused it */
async function reason(answer, otherwise) {
  if (!answer) return 'no answer';
  return (await answer.json().catch(() => ({}))).detail ?? otherwise;
}

async function look() {
  const answer = await fetch('../v1/acl/self', { headers: { accept: 'application/json' } }).catch(() => null);
  stale.value = answer?.status === 401 ? await reason(answer, 'this token is not valid') : '';
  self.value = answer?.ok ? await answer.json() : null;
}
// At first, and whenever the one who looks has become another one.
if (!report) locked.subscribe(() => void look());

/** @param {(why: string) => void} tell */
async function leave(tell) {
  const answer = await fetch('../v1/session', { method: 'DELETE' }).catch(() => null);
  if (answer?.ok) return location.reload();
  tell(await reason(answer, 'this was refused'));
}

/** Who has signed in, and the way out. */
export function Who() {
  const [why, tell] = useState('');
  const [asked, ask] = useState(false);
  const known = self.value;
  if (!known?.who || (locked.value && !known.token)) return null;
  if (!known.token && known.who === 'anonymous')
    return html`<span class="session" data-who="">${asked ? html`<${Form} />` : html`<button type="button" onClick=${() => ask(true)}>Sign in</button>`}</span>`;
  const name = known.token?.user ?? known.who;
  return html`<span class="session" data-who=${name} title=${`may: ${known.rights.join(', ')}`}>${name}${known.token ? html` <button type="button" onClick=${() => leave(tell)}>Sign out</button>` : ''}
    ${why && html`<span role="alert">✗ ${why}</span>`}</span>`;
}

function Form() {
  const [why, tell] = useState('');
  /** @param {SubmitEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const token = String(new FormData(form).get('token') ?? '').trim();
    const answer = await fetch('../v1/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(token),
    }).catch(() => null);
    if (answer?.ok) return location.reload();
    tell(await reason(answer, 'this token is not valid'));
  };
  return html`<form onSubmit=${send}><label>Token <input name="token" type="password" autocomplete="current-password" required /></label>
      <button type="submit">Sign in</button></form>
    ${why && html`<p role="alert">✗ ${why}</p>`}`;
}

/** Asks for a token until one holds; whoever has one that holds is told what it lacks. */
export function SignIn() {
  const [why, tell] = useState('');
  if (self.value?.token)
    return html`<section class="card signin" data-refused=""><h1>Access denied</h1><p role="alert">✗ ${refusal.value}</p></section>`;
  return html`<section class="card signin"><h1>Sign in</h1>
    <p>This cluster requires authentication. Paste a token; <code>rmctl acl token create --right cluster:read,job:read</code> creates one.</p>
    ${stale.value && html`<p data-stale="">The token of this browser is no longer valid: ${stale.value}. <button type="button" onClick=${() => leave(tell)}>Forget it</button></p>`}
    ${why && html`<p role="alert">✗ ${why}</p>`}
    <${Form} /></section>`;
}
