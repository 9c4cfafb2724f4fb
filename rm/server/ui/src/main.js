// The page: a frame, and the piece that the address names.

import './style.css';
import 'uplot/dist/uPlot.min.css';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import { html } from 'htm/preact';
import { barred, follow, line, locked, lostAt, now, others, pageAt, report } from './stream.js';
import { SignIn, Who } from './signin.js';
import './history.js';
import { UNKNOWN, route, to } from './route.js';
import { GoTo, Help, help } from './keys.js';
import { span } from './format.js';
import * as overview from './pages/overview.js';
import * as nodes from './pages/nodes.js';
import * as queues from './pages/queues.js';
import * as jobs from './pages/jobs.js';
import * as job from './pages/job.js';
import * as task from './pages/task.js';
import * as container from './pages/container.js';
import * as events from './pages/events.js';
import * as sizes from './pages/sizes.js';
import * as profiles from './pages/profiles.js';
import * as audit from './pages/audit.js';
import * as unknown from './pages/unknown.js';

/** @typedef {{ topics: (id: string) => string[], more?: (query: URLSearchParams, id: string) => Record<string, string>, Page: (p: { id: string, query: URLSearchParams }) => any, title?: string }} Piece */

/** @type {Record<string, Piece>} */
const PIECES = {
  overview, jobs, events, sizes, profiles, audit, job, task, container, queues,
  nodes: nodes.all, node: nodes.one, queue: queues.one, family: sizes.one, [UNKNOWN]: unknown,
};
const TABS = [['overview', 'Overview'], ['nodes', 'Nodes'], ['queues', 'Queues'], ['jobs', 'Jobs'], ['events', 'Events'], ['sizes', 'Sizes'], ['profiles', 'Profiles'], ['audit', 'Changes']];
const HOME = /** @type {Record<string, string>} */ ({ node: 'nodes', queue: 'queues', job: 'jobs', task: 'jobs', container: 'nodes', family: 'sizes' });

/** Whether what is shown is so. */
function Line() {
  const words = line.value === 'live' ? 'live' : line.value === 'waiting' ? 'connecting' : line.value === 'locked' ? 'not signed in' : `lost ${span(now.value - lostAt.value)} ago, trying again`;
  return html`<span class=${`line ${line.value}`} role="status" data-line=${line.value}><i aria-hidden="true">${line.value === 'lost' ? '✗' : '●'}</i> ${words}${line.value === 'lost' && others.value.map((manager) => html`<span data-other=${manager}> · <a href=${pageAt(manager)}>at ${new URL(manager).host}</a></span>`)}</span>`;
}

/** What whoever looks may not see, and what that needs. @param {{ why: string }} p */
function Barred({ why }) {
  return html`<section class="card nowhere" data-barred=""><h2>Access denied</h2><p role="alert">✗ ${why}</p><p><a href="#/overview">to the overview</a></p></section>`;
}

function App() {
  const { page, id, query } = route.value;
  const piece = PIECES[page];
  const topics = piece.topics(id);
  const more = piece.more?.(query, id) ?? {};
  const key = JSON.stringify([topics, more]);
  useEffect(() => follow(topics, more), [key]);
  useEffect(() => {
    document.title = `${page === UNKNOWN ? 'no such page' : id || TABS.find(([name]) => name === page)?.[1] || page} · Headroom`;
  }, [page, id]);
  const here = HOME[page] ?? page;
  const why = topics.map((topic) => barred(topic).value).find(Boolean);
  const body = html`<main id="main" tabindex="-1" class=${line.value === 'lost' ? 'stale' : ''} data-page=${page}>${locked.value ? html`<${SignIn} />` : why ? html`<${Barred} why=${why} />` : html`<${piece.Page} key=${`${page}/${id}`} id=${id} query=${query} />`}</main>`;
  if (report)
    return html`<header class="top"><a class="brand" href=${to('job', report.job)}>Headroom</a><span class="hint">report of ${report.job}, made ${new Date(report.made).toISOString().replace('T', ' ').slice(0, 19)} UTC</span></header>${body}`;
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); document.querySelector('main')?.focus(); }}>to the content</a>
    <header class="top"><a class="brand" href="#/overview"><img src="icon.svg" alt="" width="22" height="22" />Headroom</a>
      <nav aria-label="pages">${TABS.map(([name, word]) => html`<a href=${`#/${name}`} aria-current=${here === name ? 'page' : undefined}>${word}</a>`)}</nav>
      <${GoTo} /><${Line} /><${Who} /><button type="button" class="key" aria-label="keys" onClick=${() => (help.value = true)}>?</button></header>
    ${body}
    <${Help} />`;
}

const place = /** @type {HTMLElement} */ (document.getElementById('app'));
place.replaceChildren();
render(html`<${App} />`, place);
