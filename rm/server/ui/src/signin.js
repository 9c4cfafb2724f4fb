// Where callers are asked who they are: a token, which the browser then shows by itself and no script can read.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';

/** Asks for a token until one holds. */
export function SignIn() {
  const [why, tell] = useState('');
  /** @param {SubmitEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.currentTarget);
    const token = String(new FormData(form).get('token') ?? '').trim();
    const answer = await fetch('/v1/session', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(token),
    }).catch(() => null);
    if (answer?.ok) return location.reload();
    tell(answer ? (await answer.json().catch(() => ({}))).detail ?? 'this token does not hold' : 'no answer');
  };
  return html`<section class="card signin"><h1>Who are you?</h1>
    <p>This cluster tells nothing to whoever does not say who they are. Paste a token; <code>rmctl acl token create --right cluster:read,job:read</code> makes one.</p>
    <form onSubmit=${send}><label>Token <input name="token" type="password" autocomplete="current-password" required /></label>
      <button type="submit">Sign in</button></form>
    ${why && html`<p role="alert">✗ ${why}</p>`}</section>`;
}
