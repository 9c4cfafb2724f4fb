// The page for an address that leads to no page.

import { html } from 'htm/preact';

export const topics = () => ['overview'];

/** @param {{ id: string }} p */
export function Page({ id }) {
  return html`<section class="card nowhere" data-unknown=""><h2>No such page</h2><p role="alert">✗ <code>${id}</code> is not an address of this page.</p>
    <p>The field at the top takes the id of a node, queue, job, task or container. <a href="#/overview">to the overview</a></p></section>`;
}
