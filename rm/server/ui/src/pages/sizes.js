// What jobs of one name have needed, and what that says of their sizes.

import { html } from 'htm/preact';
import { useEffect, useState } from 'preact/hooks';
import { Ago, Card, Command, Empty, Histogram, Nowhere, Waiting } from '../parts.js';
import { bytes, count, percentText, span } from '../format.js';
import { to } from '../route.js';
import { board } from '../stream.js';

export const topics = () => ['families'];

/** @param {any} f */
const name = (f) => (f.user ? `${f.user}/${f.name}` : `-/${f.name}`);

export function Page() {
  const b = board('families').value;
  if (!b) return html`<${Waiting} />`;
  const rows = Object.values(b).sort((x, y) => y.last - x.last);
  return html`<h1 class="unseen">Sizes</h1><${Card} id="families" title="Job families" hint="what the jobs of one user and one name have needed">
    ${rows.length ? html`<div class="scroll"><table class="rows"><thead><tr><th>family</th><th>user</th><th class="n">runs</th><th class="n">tasks known</th><th class="n">last</th></tr></thead><tbody>${rows.map((f) => html`<tr key=${name(f)}><td><a href=${to('family', name(f))} data-row>${f.name}</a></td><td>${f.user || 'unknown'}</td><td class="n">${f.runs}</td><td class="n">${f.tasks}</td><td class="n"><${Ago} at=${f.last} /></td></tr>`)}</tbody></table></div>` : html`<${Empty}>No job has ended yet whose tasks were measured.<//>`}<//>`;
}

/** The smallest size that so many of a hundred needed at most. @param {number[]} sorted @param {number} of */
const rank = (sorted, of) => sorted[Math.max(0, Math.ceil((sorted.length * of) / 100) - 1)] ?? 0;

/** @param {{ kind: any }} p */
function Kind({ kind }) {
  const asked = kind.tasks[kind.tasks.length - 1].first;
  const peaks = kind.tasks.map((/** @type {any} */ t) => t.peak).sort((/** @type {number} */ x, /** @type {number} */ y) => x - y);
  const sum = (/** @type {(t: any) => number} */ of) => kind.tasks.reduce((/** @type {number} */ s, /** @type {any} */ t) => s + of(t) * t.runtime_ms, 0);
  const bars = Array.from({ length: 20 }, () => 0);
  for (const peak of peaks) bars[Math.min(19, Math.floor((20 * peak) / Math.max(1, asked)))] += 1;
  const kills = kind.tasks.reduce((/** @type {number} */ s, /** @type {any} */ t) => s + t.kills, 0);
  const held = sum((t) => t.last);
  return html`<${Card} id=${`kind-${kind.name}`} title=${kind.name} hint=${`${count(kind.tasks.length, 'task')} that ended well`}><div class="stage"><div><table class="rows"><tbody>
      <tr><th>asked last</th><td class="n">${bytes(asked)}</td></tr><tr><th>half needed at most</th><td class="n">${bytes(rank(peaks, 50))}</td></tr><tr><th>19 of 20 needed at most</th><td class="n">${bytes(rank(peaks, 95))}</td></tr><tr><th>the most</th><td class="n">${bytes(rank(peaks, 100))}</td></tr><tr><th>memory kills</th><td class=${`n ${kills ? 'bad' : ''}`}>${kills}</td></tr><tr><th>idle share of what was given</th><td class="n">${held ? percentText(held - sum((t) => Math.min(t.peak, t.last)), held) : '–'}</td></tr><tr><th>median time</th><td class="n">${span(rank(kind.tasks.map((/** @type {any} */ t) => t.runtime_ms).sort((/** @type {number} */ x, /** @type {number} */ y) => x - y), 50))}</td></tr></tbody></table></div>
    <div><${Histogram} bars=${bars} label="peak against what was asked; the last bar is all beyond" tone=${(/** @type {number} */ i) => (i >= 19 ? 'bad' : i >= 10 ? 'use' : 'dim')} /></div></div><//>`;
}

/** @param {{ id: string }} p */
function One({ id }) {
  const [user, family] = id.split('/');
  const b = board('families').value;
  const [told, set] = useState(/** @type {any} */ (null));
  const last = b ? Object.values(b).find((f) => f.name === family && (f.user || '-') === user)?.last : 0;
  useEffect(() => {
    if (last) fetch(`../v1/families/${family}?${new URLSearchParams(user === '-' ? {} : { user })}`).then((r) => (r.ok ? r.json() : null)).catch(() => null).then(set);
  }, [id, last]);
  if (b && !last) return html`<${Nowhere} what=${`there is no family ${family} of ${user === '-' ? 'unknown' : user}`} />`;
  if (!told) return html`<${Waiting} />`;
  return html`<div class="title"><h1>${family}</h1><span class="hint">of ${user === '-' ? 'unknown' : user} · ${count(told.runs, 'job')} · last <${Ago} at=${told.last} /></span></div>
    <${Card} id="suggest" title="Suggested sizes" hint="worked out from these figures, with what they would have cost and spared: #/profiles"><${Command} text=${`rmctl job suggest ${family}${user === '-' ? '' : ` --user ${user}`}`} /><//>
    ${told.kinds.filter((/** @type {any} */ k) => k.tasks.length).map((/** @type {any} */ kind) => html`<${Kind} key=${kind.name} kind=${kind} />`)}`;
}

export const one = { topics, Page: One };
