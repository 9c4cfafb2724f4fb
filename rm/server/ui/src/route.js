// Where the page stands: what is behind # is an id as rmctl takes it.

import { signal } from '@preact/signals';
import { report } from './stream.js';

/** @typedef {{ page: string, id: string, query: URLSearchParams }} Route */

/** Pages by whether their address ends in an id. @type {Record<string, 'none' | 'optional' | 'required'>} */
const PAGES = {
  overview: 'none', nodes: 'none', queues: 'none', jobs: 'none', events: 'none', sizes: 'none', audit: 'none', profiles: 'optional',
  node: 'required', queue: 'required', job: 'required', task: 'required', container: 'required', family: 'required',
};
/** The page for an address that leads to no page. Its id is that address. */
export const UNKNOWN = 'unknown';

/** @param {string} page @param {string} id */
function exists(page, id) {
  if (!Object.hasOwn(PAGES, page)) return false;
  return id ? PAGES[page] !== 'none' : PAGES[page] !== 'required';
}

/** Decodes one part of an address; a part that is not valid percent-encoding stays as it is. @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @returns {Route} */
function read() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const [page, ...rest] = (path || 'overview').split('/').map(decode);
  const id = rest.join('/');
  // A report has one job and its tasks.
  if (report && page !== 'task') return { page: 'job', id: report.job, query: new URLSearchParams() };
  if (!exists(page, id)) return { page: UNKNOWN, id: `#/${path}`, query: new URLSearchParams() };
  return { page, id, query: new URLSearchParams(query ?? '') };
}

export const route = signal(read());
addEventListener('hashchange', () => {
  route.value = read();
  scrollTo(0, 0);
});

/** @param {string} page @param {string} [id] @returns {string} */
export function to(page, id) {
  return id ? `#/${page}/${id.split('/').map(encodeURIComponent).join('/')}` : `#/${page}`;
}

/** Changes what is after the question mark. @param {Record<string, string>} change */
export function ask(change) {
  const { page, id, query } = route.value;
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(change)) value ? next.set(name, value) : next.delete(name);
  const text = next.toString();
  location.replace(`${to(page, id)}${text ? `?${text}` : ''}`);
}

/** Where an id leads, as rmctl reads ids. @param {string} text @returns {string} */
export function resolve(text) {
  const id = text.trim();
  if (/\.e\d+\.c\d+$/.test(id)) return to('container', id);
  if (/^[^/]+\.\d+\/[^/]+\/\d+(@\d+)?$/.test(id)) return to('task', id.replace(/@\d+$/, ''));
  if (/^[^/]+\.\d+$/.test(id) && !id.startsWith('root.')) return to('job', id);
  if (/^root(\.|$)/.test(id)) return to('queue', id);
  return to('node', id);
}
