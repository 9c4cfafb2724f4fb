// Quantities and times as people read them.

const STEPS = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]];

/** @param {number} n @returns {string} three digits that matter */
function digits(n) {
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1).replace(/\.0$/, '') : n.toFixed(2).replace(/\.?0+$/, '');
}

/** @param {number | null | undefined} n bytes @returns {string} such as `2.4 GiB` */
export function bytes(n) {
  if (n === null || n === undefined) return '–';
  for (const [unit, size] of STEPS) if (n >= /** @type {number} */ (size)) return `${digits(n / /** @type {number} */ (size))} ${unit}`;
  return `${n} B`;
}

/** @param {number | null | undefined} n bytes @returns {string} such as `2.4G` */
export function short(n) {
  return bytes(n).replace(/ (.)i?B?$/, '$1');
}

/** Two quantities in the unit of the larger. @param {number} part @param {number} whole @returns {[string, string]} such as `43.8 / 75`, `GiB` */
export function ratio(part, whole) {
  const [unit, size] = /** @type {[string, number]} */ (STEPS.find(([, s]) => Math.max(part, whole) >= /** @type {number} */ (s)) ?? ['B', 1]);
  return [`${digits(part / size)} / ${digits(whole / size)}`, unit];
}

/** @param {number} part @param {number} whole @returns {number} 0 to 100 */
export function percent(part, whole) {
  return whole > 0 ? (100 * part) / whole : 0;
}

/** @param {number} part @param {number} whole */
export function percentText(part, whole) {
  const p = percent(part, whole);
  return `${p >= 10 || p === 0 ? p.toFixed(0) : p.toFixed(1)} %`;
}

/** @param {number} ms @returns {string} such as `1m 10s` */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${String(s % 60).padStart(2, '0')}s`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h ${String(Math.floor((s % 3600) / 60)).padStart(2, '0')}m`;
  return `${Math.floor(s / 86_400)}d ${Math.floor((s % 86_400) / 3600)}h`;
}

/** @param {number} ms time of day in UTC */
export function clock(ms) {
  return new Date(ms).toISOString().slice(11, 19);
}

/** @param {number} ms time of day in UTC, with milliseconds */
export function fineClock(ms) {
  return new Date(ms).toISOString().slice(11, 23);
}

/** @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many) {
  return `${n.toLocaleString('en')} ${n === 1 ? one : (many ?? `${one}s`)}`;
}

/** Memory times time. @param {number} byteSeconds */
export function work(byteSeconds) {
  const minutes = byteSeconds / 2 ** 30 / 60;
  return minutes >= 60 ? `${digits(minutes / 60)} GiB·h` : `${digits(minutes)} GiB·min`;
}
