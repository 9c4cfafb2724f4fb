// Memory over time: what was in use, the limit as it stepped, kills and growth.

import { html } from 'htm/preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { bytes, short, span } from './format.js';

/** @typedef {{ x: number, y: number, kind: 'kill' | 'grown' | 'end' | 'stop', label: string }} Mark */
/** @typedef {{ xs: number[], used: (number | null)[], anon: (number | null)[], heap: (number | null)[], limit: (number | null)[], marks: Mark[] }} Lines seconds and bytes */

const dark = matchMedia('(prefers-color-scheme: dark)');
const STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512].flatMap((n) => [n * 2 ** 20, n * 2 ** 30, n * 2 ** 40]).sort((a, b) => a - b);

/** @param {HTMLElement} el @param {string} name */
const colour = (el, name) => getComputedStyle(el).getPropertyValue(name).trim();

/** @param {uPlot} u @param {Mark[]} marks @param {HTMLElement} el */
function draw(u, marks, el) {
  const { ctx } = u;
  const px = devicePixelRatio || 1;
  ctx.save();
  ctx.setLineDash([]);
  ctx.font = `600 ${11 * px}px system-ui, sans-serif`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  marks.forEach((mark) => {
    const x = u.valToPos(mark.x, 'x', true);
    const y = u.valToPos(mark.y, 'y', true);
    const tone = colour(el, mark.kind === 'kill' ? '--bad' : mark.kind === 'grown' ? '--over' : mark.kind === 'end' ? '--good' : '--warn');
    if (mark.kind === 'kill') {
      ctx.strokeStyle = tone;
      ctx.globalAlpha = 0.45;
      ctx.lineWidth = px;
      ctx.beginPath();
      ctx.moveTo(x, u.bbox.top);
      ctx.lineTo(x, u.bbox.top + u.bbox.height);
      ctx.stroke();
      ctx.globalAlpha = 1;
    }
    ctx.fillStyle = tone;
    ctx.beginPath();
    ctx.arc(x, y, 8 * px, 0, 7);
    ctx.fill();
    ctx.fillStyle = colour(el, '--on-tone');
    ctx.fillText(mark.kind === 'kill' ? '✕' : mark.kind === 'grown' ? '▲' : mark.kind === 'end' ? '✓' : '■', x, y + px);
  });
  ctx.restore();
}

/** @param {HTMLElement} el @param {{ current: Lines }} lines @returns {uPlot} */
function make(el, lines) {
  const axis = { stroke: colour(el, '--dim'), grid: { stroke: colour(el, '--edge'), width: 1 }, ticks: { stroke: colour(el, '--edge'), width: 1 }, font: '11px system-ui, sans-serif' };
  const blue = colour(el, '--heap');
  /** @type {uPlot.Options} */
  const options = {
    width: el.clientWidth || 600,
    height: el.clientWidth < 500 ? 220 : 280,
    padding: [14, 14, 0, 0],
    scales: { x: { time: false }, y: { range: (_u, _min, max) => [0, Math.max(max, 2 ** 20) * 1.12] } },
    axes: [
      { ...axis, values: (_u, ticks) => ticks.map((t) => (t === 0 ? '0' : t < 10 ? `${Number(t.toFixed(2))} s` : span(t * 1000))) },
      { ...axis, size: 62, incrs: STEPS, values: (_u, ticks) => ticks.map((t) => (t ? bytes(t) : '0')) },
    ],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    series: [
      {},
      { label: 'in use', stroke: blue, width: 1.6, fill: colour(el, '--area'), spanGaps: false, points: { show: false } },
      { label: 'anonymous', stroke: colour(el, '--use'), width: 1.2, points: { show: false } },
      { label: 'heap', stroke: colour(el, '--over'), width: 1.2, dash: [2, 3], points: { show: false } },
      { label: 'limit', stroke: colour(el, '--bad'), width: 1.8, dash: [7, 4], points: { show: false }, paths: uPlot.paths.stepped?.({ align: 1 }) },
    ],
    hooks: { draw: [(u) => draw(u, lines.current.marks, el)] },
  };
  return new uPlot(options, data(lines.current), el);
}

/** @param {Lines} l @returns {uPlot.AlignedData} */
const data = (l) => /** @type {uPlot.AlignedData} */ ([l.xs, l.used, l.anon, l.heap, l.limit]);

/** @param {{ lines: Lines, label: string }} p */
export function Chart({ lines, label }) {
  const el = useRef(/** @type {HTMLDivElement | null} */ (null));
  const latest = useRef(lines);
  const plot = useRef(/** @type {uPlot | null} */ (null));
  latest.current = lines;
  useEffect(() => {
    const place = /** @type {HTMLDivElement} */ (el.current);
    const again = () => {
      plot.current?.destroy();
      plot.current = make(place, latest);
    };
    again();
    const wide = new ResizeObserver(() => plot.current?.setSize({ width: place.clientWidth, height: place.clientWidth < 500 ? 220 : 280 }));
    wide.observe(place);
    dark.addEventListener('change', again);
    return () => {
      wide.disconnect();
      dark.removeEventListener('change', again);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data(lines)), [lines]);
  const kills = lines.marks.filter((m) => m.kind === 'kill').length;
  return html`<div class="chart" ref=${el} role="img" aria-label=${`${label}: ${kills} kills; as a table below`} data-kills=${kills}></div>
    <ul class="legend" aria-label="legend"><li><i class="line"></i>in use</li><li><i class="line anon"></i>anonymous</li><li><i class="line heap"></i>heap, reported by the runtime</li><li><i class="line limit"></i>limit</li><li><i class="dot bad">✕</i>killed</li><li><i class="dot over">▲</i>grew</li><li><i class="dot good">✓</i>done</li></ul>`;
}

/** @returns {Lines} */
const none = () => ({ xs: [], used: [], anon: [], heap: [], limit: [], marks: [] });

/** @param {Lines} l @param {number} x @param {number | null} used @param {number | null} limit @param {any} [more] */
function point(l, x, used, limit, more) {
  const last = l.xs[l.xs.length - 1];
  l.xs.push(last !== undefined && x <= last ? last + 0.001 : x);
  l.used.push(used);
  l.limit.push(limit);
  l.anon.push(more?.anon ?? null);
  l.heap.push(more?.heap ?? null);
}

/** The limit of an attempt at a moment: it may have grown. @param {any} a @param {number} at */
function limitAt(a, at) {
  let limit = a.grown?.length ? a.grown[0].from : a.profile.heap + a.profile.overhead;
  for (const g of a.grown ?? []) if (at >= g.at) limit = g.to;
  return limit;
}

/** All attempts of a task on one axis, seconds after the first one began. @param {any[]} attempts @param {(a: any) => [number, number][]} past @param {number} now @returns {Lines} */
export function across(attempts, past, now) {
  const l = none();
  const zero = attempts[0]?.started ?? now;
  for (const a of attempts) {
    const begin = (a.started - zero) / 1000;
    const end = ((a.ended ?? Math.max(now, a.started)) - zero) / 1000;
    if (l.xs.length) point(l, begin - 0.0005, null, null);
    point(l, begin, null, limitAt(a, a.started));
    const rows = a.timeline.map((/** @type {any} */ s) => ({ at: a.started + s.at_ms, used: s.current, limit: s.limit, anon: s.anon, heap: s.heap, mark: s.mark }));
    if (!rows.length) rows.push(...past(a).filter(([at]) => at >= a.started && (!a.ended || at <= a.ended)).map(([at, used]) => ({ at, used })));
    for (const g of a.grown ?? []) rows.push({ at: g.at, used: null, limit: g.to, grown: true });
    rows.sort((/** @type {any} */ x, /** @type {any} */ y) => x.at - y.at);
    let top = 0;
    for (const row of rows) {
      const x = (row.at - zero) / 1000;
      if (x > end) continue;
      const limit = row.limit ?? limitAt(a, row.at);
      // The last look at a killed one finds it empty.
      if (row.mark === 'killed') continue;
      point(l, x, row.grown ? (l.used[l.used.length - 1] ?? null) : row.used, limit, row);
      if (row.grown) l.marks.push({ x, y: limit, kind: 'grown', label: `grew to ${bytes(limit)}` });
      top = row.used ?? top;
    }
    const limit = limitAt(a, a.ended ?? now);
    // What was not measured is not drawn: of an attempt without samples there is its limit and its peak.
    const last = a.charge === 'memory' ? Math.max(top, a.peak ?? 0) : a.ended ? (rows.length ? top : null) : (a.used ?? null);
    point(l, end, last, limit);
    if (a.ended && a.charge === 'memory') l.marks.push({ x: end, y: limit, kind: 'kill', label: `killed at ${bytes(limit)}` });
    else if (a.ended && a.charge === 'success') l.marks.push({ x: end, y: a.peak ?? 0, kind: 'end', label: `done, peak ${short(a.peak)}` });
    else if (a.ended) l.marks.push({ x: end, y: last ?? a.peak ?? 0, kind: 'stop', label: a.verdict });
  }
  return l;
}

/** One container. @param {any[]} samples @param {[number, number][]} live @param {number} zero time of day of its first sample @param {number} memory @param {string | null} charge @returns {Lines} */
export function alone(samples, live, zero, memory, charge) {
  const l = none();
  for (const s of samples) {
    const x = s.at_ms / 1000;
    point(l, x, s.current, s.limit ?? memory, s);
    if (s.mark === 'killed') l.marks.push({ x, y: s.limit ?? memory, kind: 'kill', label: 'killed' });
    else if (s.mark === 'limit_raised') l.marks.push({ x, y: s.limit ?? memory, kind: 'grown', label: 'grew' });
    else if (s.mark === 'ended' && charge === 'success') l.marks.push({ x, y: s.current, kind: 'end', label: 'ended' });
    else if (s.mark === 'stopped') l.marks.push({ x, y: s.current, kind: 'stop', label: 'stopped' });
  }
  const after = samples.length ? samples[samples.length - 1].at_ms : -1;
  for (const [at, used] of live) if (at - zero > after) point(l, (at - zero) / 1000, used, memory);
  return l;
}
