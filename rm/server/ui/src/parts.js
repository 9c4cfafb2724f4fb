// Small pieces of every page.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { bytes, percentText, span } from './format.js';
import { now } from './stream.js';

/** A figure with its words. @param {{ figure: any, unit?: string, what: any, more?: any, tone?: string, href?: string, name?: string }} p */
export function Chip({ figure, unit, what, more, tone, href, name }) {
  const inside = html`<b>${figure}${unit ? html`<small> ${unit}</small>` : ''}</b><span>${what}</span><em>${more ?? ''}</em>`;
  return href
    ? html`<a class=${`chip ${tone ?? ''}`} href=${href} data-chip=${name}>${inside}</a>`
    : html`<div class=${`chip ${tone ?? ''}`} data-chip=${name}>${inside}</div>`;
}

/** A card. @param {{ title: any, hint?: any, children?: any, class?: string, id?: string, actions?: any }} p */
export function Card(p) {
  return html`<section class=${`card ${p.class ?? ''}`} aria-labelledby=${p.id} data-card=${p.id}>
    <header><h2 id=${p.id}>${p.title}</h2>${p.hint ? html`<span class="hint">${p.hint}</span>` : ''}${p.actions ? html`<span class="actions">${p.actions}</span>` : ''}</header>
    ${p.children}
  </section>`;
}

/** A command that can be taken along. @param {{ text: string, label?: string }} p */
export function Command({ text, label }) {
  const [done, set] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without a secure context there is no clipboard; the text can be selected.
      return;
    }
    set(true);
    setTimeout(() => set(false), 1500);
  };
  return html`<div class="command">${label ? html`<span>${label}</span>` : ''}<code>${text}</code><button type="button" onClick=${copy} aria-label=${`copy ${text}`}>${done ? '✓ copied' : 'copy'}</button></div>`;
}

const GLYPHS = /** @type {Record<string, string>} */ ({
  ready: '●', running: '▶', done: '✓', finished: '✓', failed: '✗', killed: '✗', pending: '…', blocked: '·', accepted: '…', finishing: '◒',
  cordoned: '◍', draining: '◌', drained: '◌', decommissioned: '◌', unhealthy: '!', suspect: '?', unreachable: '!', lost: '✗', allocated: '…', launching: '…',
  stopping: '◒', exited: '■', paused: '‖', stopped: '■',
});
const TONES = /** @type {Record<string, string>} */ ({
  ready: 'good', running: 'live', done: 'good', finished: 'good', failed: 'bad', killed: 'bad', cordoned: 'warn', draining: 'warn', drained: 'dim', unhealthy: 'bad',
  suspect: 'warn', unreachable: 'bad', lost: 'bad', paused: 'warn', stopped: 'warn', pending: 'warn',
});

/** A state by word, glyph and colour. @param {{ of: string, title?: string }} p */
export function State({ of, title }) {
  return html`<span class=${`state ${TONES[of] ?? 'dim'}`} title=${title}><i aria-hidden="true">${GLYPHS[of] ?? '·'}</i>${of}</span>`;
}

/** @param {string | null | undefined} charge @returns {[string, string]} glyph and tone of an end */
export function endOf(charge) {
  if (charge === null || charge === undefined) return ['▶', 'live'];
  return charge === 'success' ? ['✓', 'good'] : charge === 'free' ? ['↻', 'warn'] : ['✗', 'bad'];
}

/** How long ago, counting up. @param {{ at: number }} p */
export function Ago({ at }) {
  return html`<time datetime=${new Date(at).toISOString()}>${span(Math.max(0, now.value - at))}</time>`;
}

/** A bar of two parts: granted and in use. @param {{ granted: number, used: number, whole: number, heap?: number }} p */
export function Meter({ granted, used, whole, heap }) {
  const width = (/** @type {number} */ n) => ({ width: `${Math.min(100, whole > 0 ? (100 * n) / whole : 0)}%` });
  const text = `${bytes(granted)} of ${bytes(whole)} granted (${percentText(granted, whole)}), ${bytes(used)} in use`;
  return html`<div class="meter" role="img" aria-label=${text} title=${text}>
    <i class="granted" style=${width(granted)}></i>${heap ? html`<i class="heap" style=${width(heap)}></i>` : ''}<i class="used" style=${width(used)}></i>
  </div>`;
}

/** Bars of a histogram with a table twin. @param {{ bars: number[], label: string, from?: (i: number) => string, tone?: (i: number) => string }} p */
export function Histogram({ bars, label, from, tone }) {
  const most = Math.max(1, ...bars);
  const name = from ?? ((/** @type {number} */ i) => `${(i * 100) / bars.length} %`);
  const filled = bars.map((n, i) => (n ? `${name(i)}: ${n}` : '')).filter(Boolean).join(', ');
  return html`<div class="histogram">
    <div class="bars" role="img" aria-label=${`${label}: ${filled || 'nothing'}`}>
      ${bars.map((n, i) => html`<i class=${tone?.(i) ?? ''} style=${{ height: n ? `${Math.max(4, (100 * n) / most)}%` : '1px' }} title=${`from ${name(i)}: ${n}`}></i>`)}
    </div>
    <div class="axis" aria-hidden="true"><span>${name(0)}</span><span>${label}</span><span>100 %</span></div>
    <${Twin} head=${['from', 'how many']} rows=${bars.map((n, i) => [name(i), n]).filter(([, n]) => n)} />
  </div>`;
}

/** What a picture shows, as a table. @param {{ head: string[], rows: any[][], name?: string }} p */
export function Twin({ head, rows, name }) {
  return html`<details class="twin"><summary>${name ?? 'as a table'}</summary><div class="scroll"><table>
    <thead><tr>${head.map((h) => html`<th scope="col">${h}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
  </table></div></details>`;
}

/** Nothing to show, and why. @param {{ children?: any }} p */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}

/** Before the first word. */
export function Waiting() {
  return html`<div class="skeleton" aria-busy="true" aria-label="waiting for the resource manager"><i></i><i></i><i></i></div>`;
}

/** A thing that is not there. @param {{ what: string }} p */
export function Nowhere({ what }) {
  return html`<div class="card nowhere"><h2>Not found</h2><p>${what}. It may have been removed after its end, or the id may be wrong.</p><p><a href="#/overview">to the overview</a></p></div>`;
}
