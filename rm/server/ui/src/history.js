// What running attempts had in use since this page was opened: told as it changes, kept here so that a chart has a past.

import { signal } from '@preact/signals';
import { heed } from './stream.js';

const POINTS = 2000;
/** @type {Map<string, [number, number][]>} time of day and bytes, by attempt or container */
const seen = new Map();
/** Goes up with every point. */
export const points = signal(0);

/** @param {string} id @param {number | null | undefined} value */
function note(id, value) {
  if (value === null || value === undefined) return;
  let row = seen.get(id);
  if (!row) {
    seen.set(id, (row = []));
    if (seen.size > 500) seen.delete(/** @type {string} */ (seen.keys().next().value));
  }
  const last = row[row.length - 1];
  if (last && last[1] === value && Date.now() - last[0] < 900) return;
  row.push([Date.now(), value]);
  if (row.length > POINTS) row.splice(0, row.length - POINTS);
  points.value += 1;
}

/** @param {string} id @returns {[number, number][]} */
export function past(id) {
  return seen.get(id) ?? [];
}

heed((topic, board) => {
  if (topic.startsWith('task:')) {
    const app = topic.slice(5).split('/')[0];
    for (const a of board.row?.attempts ?? []) if (!a.ended) note(`${app}/${board.row.task}@${a.n}`, a.used);
  } else if (topic.startsWith('job:')) {
    for (const [name, row] of Object.entries(board)) {
      if (!name.startsWith('task:')) continue;
      for (const a of row.attempts) if (!a.ended) note(`${topic.slice(4)}/${row.task}@${a.n}`, a.used);
    }
  } else if (topic.startsWith('container:') && board.container?.used) note(board.container.id, board.container.used);
});
