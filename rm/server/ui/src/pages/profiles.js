// Sizes that the cluster keeps under names, and those that follow from what earlier jobs have needed.

import { html } from 'htm/preact';
import { useEffect, useState } from 'preact/hooks';
import { Ago, Card, Command, Empty, Waiting } from '../parts.js';
import { bytes, percentText } from '../format.js';
import { to } from '../route.js';
import { board } from '../stream.js';

export const topics = () => ['profiles', 'families'];

/** @param {{ all: any[] }} p */
const Kept = ({ all }) => html`<${Card} id="profiles" title="Profiles of the cluster" hint=${'a job file names one as profile = "NAME"'}>
  ${all.length ? html`<div class="scroll"><table class="rows"><thead><tr><th>profile</th><th class="n">memory</th><th class="n">heap</th><th class="n">overhead</th><th class="n">processors</th><th>for</th><th class="n">changed</th></tr></thead>
    <tbody>${all.map((p) => html`<tr key=${p.name}><td><a href=${to('profiles', p.name)} data-row data-profile=${p.name}>${p.name}</a></td><td class="n">${bytes(p.heap + p.overhead)}</td><td class="n">${bytes(p.heap)}</td><td class="n">${bytes(p.overhead)}</td><td class="n">${p.cpus}</td><td>${p.about}</td><td class="n"><${Ago} at=${p.changed} /></td></tr>`)}</tbody></table></div>`
    : html`<${Empty}>The cluster has no profiles. <${Command} text="rmctl profile set NAME --memory 1GiB" /><//>`}<//>`;

/** Where a stage comes from. @param {any} s */
const family = (s) => `${s.user || '-'}/${s.job}`;

/** @param {{ s: any }} p */
const Row = ({ s }) => html`<tr data-suggestion=${`${s.job}/${s.kind}`}><td><a href=${to('family', family(s))} data-row>${s.job}/${s.kind}</a></td><td>${s.user || 'unknown'}</td><td class="n">${s.tasks}</td><td class="n">${bytes(s.asked)}</td><td class="n">${bytes(s.p50)}</td><td class="n">${bytes(s.p95)}</td><td class="n">${bytes(s.max)}</td><td class=${`n ${s.kills ? 'bad' : ''}`}>${s.kills}</td>
  <td class="n">${s.allocated_gib_h ? percentText(Math.max(0, s.allocated_gib_h - s.needed_gib_h), s.allocated_gib_h) : '–'}</td><td class="n"><b>${s.suggested ? bytes(s.suggested) : 'too few'}</b></td><td class="n">${s.then ? bytes(s.then) : '–'}</td><td class="n">${s.suggested && s.allocated_gib_h ? `${s.would_allocate_gib_h > s.allocated_gib_h ? '−' : ''}${percentText(Math.abs(s.allocated_gib_h - s.would_allocate_gib_h), s.allocated_gib_h)}` : '–'}</td></tr>
  <tr><td colspan="12" class="hint">${s.why}</td></tr>`;

/** @param {{ rows: any[] | null, only: any }} p */
function Suggested({ rows, only }) {
  if (!rows) return html`<${Waiting} />`;
  const hint = only ? `stages that asked for ${bytes(only.heap + only.overhead)} last` : 'for each stage of the jobs that are remembered; waste is what was given and not needed, of memory × time';
  return html`<${Card} id="suggestions" title="Suggested sizes" hint=${hint}>
    ${rows.length ? html`<div class="scroll"><table class="rows"><thead><tr><th>job/stage</th><th>user</th><th class="n">tasks</th><th class="n">asked</th><th class="n">P50</th><th class="n">P95</th><th class="n">most</th><th class="n">kills</th><th class="n">waste</th><th class="n">suggested</th><th class="n">then</th><th class="n">saves</th></tr></thead><tbody>${rows.map((s) => html`<${Row} key=${`${family(s)}/${s.kind}`} s=${s} />`)}</tbody></table></div>` : html`<${Empty}>No job has ended yet whose tasks were measured${only ? ' and asked for that' : ''}.<//>`}<//>`;
}

/** @param {{ id: string }} p */
export function Page({ id }) {
  const kept = board('profiles').value;
  const families = board('families').value;
  const [rows, set] = useState(/** @type {any[] | null} */ (null));
  // Worked out by the resource manager, and other ones only when a job has ended.
  const last = families ? Math.max(0, ...Object.values(families).map((f) => f.last)) : -1;
  useEffect(() => {
    if (last >= 0) fetch('../v1/suggestions').then((r) => (r.ok ? r.json() : [])).catch(() => []).then(set);
  }, [last]);
  if (!kept || !families) return html`<${Waiting} />`;
  const all = Object.values(kept).sort((x, y) => (x.name < y.name ? -1 : 1));
  const only = id ? all.find((p) => p.name === id) : null;
  const shown = rows && only ? rows.filter((s) => s.asked === only.heap + only.overhead) : rows;
  return html`<h1 class="unseen">Profiles</h1>
    ${id ? html`<div class="title"><h1>${id}</h1><span class="hint">${only ? `revision ${only.revision}` : 'the cluster has no profile of that name'} · <a href=${to('profiles')}>all of them</a></span></div>` : null}
    <${Kept} all=${only ? [only] : all} /><${Suggested} rows=${shown} only=${only} />
    <${Card} id="commands" title="Change it" hint="the page only reads"><${Command} text=${id ? `rmctl profile suggest ${id}` : 'rmctl profile suggest'} /><${Command} text="rmctl profile import FILE" /><//>`;
}
