// One line from the resource manager for all that is on the screen. No polling: it tells when something is another one.

import { signal, batch } from '@preact/signals';

/** @typedef {Record<string, any>} Board */

/** `live`, `waiting` for the first word, `lost`, or `locked`. */
export const line = signal('waiting');
/** Nobody is told anything here who does not say who they are. */
export const locked = signal(false);
/** Why the line was refused, while it is. */
export const refusal = signal('');
/** When the line was lost, or 0. */
export const lostAt = signal(0);
/** @type {import('@preact/signals').Signal<string[]>} Addresses of the other resource managers. */
export const others = signal([]);
/** Ticks once a second, for what counts up by itself. */
export const now = signal(Date.now());
/** @type {import('@preact/signals').Signal<any[]>} Events, the oldest first. */
export const events = signal([]);
/** Whether the events were told once. */
export const eventsKnown = signal(false);

/**
 * What a report holds: the file carries what the page would have been told when it was made. Null on the page itself.
 * @type {{ job: string, made: number, boards: Record<string, Board>, events: any[] } | null}
 */
export const report = JSON.parse(document.getElementById('report')?.textContent ?? 'null');

const KEPT = 1000;
/** @type {Map<string, import('@preact/signals').Signal<Board | null>>} */
const boards = new Map();
/** @type {Map<string, import('@preact/signals').Signal<string>>} */
const lacking = new Map();
/** @type {Map<string, import('@preact/signals').Signal<string>>} */
const refused = new Map();

/** @param {string} topic @returns {import('@preact/signals').Signal<Board | null>} what is known of a topic */
export function board(topic) {
  let found = boards.get(topic);
  if (!found) boards.set(topic, (found = signal(/** @type {Board | null} */ (null))));
  return found;
}
/** @param {string} topic @returns {import('@preact/signals').Signal<string>} why there is nothing; empty when there is */
export function missing(topic) {
  let found = lacking.get(topic);
  if (!found) lacking.set(topic, (found = signal('')));
  return found;
}

/** @param {string} topic @returns {import('@preact/signals').Signal<string>} why whoever looks may not see it; empty when they may */
export function barred(topic) {
  let found = refused.get(topic);
  if (!found) refused.set(topic, (found = signal('')));
  return found;
}

/** @type {((topic: string, board: Board) => void)[]} */
const listeners = [];
/** Calls back after every change of a board. @param {(topic: string, board: Board) => void} listener */
export function heed(listener) {
  listeners.push(listener);
}

/** @type {EventSource | null} */
let source = null;
let address = '';
let retry = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {string} topic @param {Board} next */
function put(topic, next) {
  missing(topic).value = '';
  board(topic).value = next;
  for (const listener of listeners) listener(topic, next);
}

/** This page at another resource manager. @param {string} manager @returns {string} its address */
export function pageAt(manager) {
  const { pathname, search, hash } = window.location;
  return new URL(pathname + search, manager).href + hash;
}

/** Reads the addresses of the other resource managers, which are needed when this one is gone. */
function readOthers() {
  fetch('../v1/leader', { headers: { accept: 'application/json' } }).then(
    async (answer) => {
      if (!answer.ok) return;
      const { own, managers } = await answer.json();
      others.value = managers.map((/** @type {{ url: string }} */ manager) => manager.url).filter((/** @type {string} */ url) => url !== own);
    },
    () => {},
  );
}

/** @param {string} kind @param {any} told */
function take(kind, told) {
  if (line.value !== 'live') readOthers();
  batch(() => {
    line.value = 'live';
    locked.value = false;
    lostAt.value = 0;
    retry = 0;
    if (kind === 'snapshot') put(told.topic, told.set);
    else if (kind === 'patch') {
      const next = { ...board(told.topic).value, ...told.set };
      for (const name of told.gone) delete next[name];
      put(told.topic, next);
    } else if (kind === 'missing') {
      board(told.topic).value = null;
      missing(told.topic).value = told.detail;
    } else if (kind === 'refused') {
      barred(told.topic).value = told.detail;
    } else if (kind === 'events') {
      events.value = (told.first ? told.rows : [...events.value, ...told.rows]).slice(-KEPT);
      eventsKnown.value = true;
    } else if (kind === 'resync') events.value = [];
  });
}

function lost() {
  if (locked.value) return;
  if (line.value !== 'lost') lostAt.value = Date.now();
  line.value = 'lost';
}

function open() {
  clearTimeout(timer);
  source?.close();
  const opened = new EventSource(address);
  source = opened;
  for (const kind of ['snapshot', 'patch', 'missing', 'refused', 'events', 'resync'])
    opened.addEventListener(kind, (event) => take(kind, JSON.parse(/** @type {MessageEvent} */ (event).data)));
  opened.onerror = () => {
    lost();
    // It tries again by itself, unless it was turned away.
    if (opened.readyState !== EventSource.CLOSED || source !== opened) return;
    retry = Math.min(retry + 1, 5);
    timer = setTimeout(open, 500 * 2 ** retry);
    // A source does not say why it was turned away.
    fetch('../v1/status', { headers: { accept: 'application/json' } }).then(
      async (answer) => {
        const leader = answer.headers.get('location');
        // Another resource manager leads, and has this page at the same path.
        if (answer.status === 421 && leader) window.location.replace(pageAt(new URL(leader).origin));
        if (answer.status !== 401 && answer.status !== 403) return;
        const { detail } = await answer.json().catch(() => ({}));
        batch(() => {
          refusal.value = detail ?? 'the caller may not see this topic';
          line.value = 'locked';
          locked.value = true;
        });
      },
      () => {},
    );
  };
}

/** A report tells everything at once, and nothing after. @param {NonNullable<typeof report>} held @param {string[]} topics */
function show(held, topics) {
  batch(() => {
    for (const topic of topics.filter((t) => t !== 'events')) {
      const told = held.boards[topic];
      if (told) put(topic, told);
      else missing(topic).value = 'this report holds the tasks that needed more than their first size, failed, or ran again';
    }
    for (const told of held.events) if (told.kind === 'events') events.value = told.rows;
    eventsKnown.value = true;
    line.value = 'report';
  });
}

/** Follows these topics, and nothing else. @param {string[]} topics @param {Record<string, string>} [more] */
export function follow(topics, more = {}) {
  if (report) return show(report, topics);
  const query = new URLSearchParams({ topics: topics.join(','), ...more });
  const next = `../v1/stream?${query}`;
  if (next === address) return;
  address = next;
  if (line.value === 'live') readOthers();
  for (const topic of [...boards.keys()]) if (!topics.includes(topic)) boards.delete(topic);
  for (const topic of [...lacking.keys()]) if (!topics.includes(topic)) lacking.delete(topic);
  for (const topic of [...refused.keys()]) if (!topics.includes(topic)) refused.delete(topic);
  events.value = [];
  eventsKnown.value = false;
  open();
}

// A browser has few connections for one address: a tab that nobody sees gives its one back.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) {
    timer = setTimeout(() => source?.close(), 30_000);
  } else {
    clearTimeout(timer);
    if (source?.readyState === EventSource.CLOSED && address) open();
  }
});
if (report) now.value = report.made;
else setInterval(() => (now.value = Date.now()), 1000);
