// All nodes, a piece at a time, and one node with its containers.

import { html } from 'htm/preact';
import { Card, Chip, Command, Empty, Meter, Nowhere, State, Twin, Waiting } from '../parts.js';
import { Topology } from '../topology.js';
import { Find, Pager, pick } from './jobs.js';
import { Ago } from '../parts.js';
import { bytes, percentText } from '../format.js';
import { ask, to } from '../route.js';
import { board, missing } from '../stream.js';

/** Why a node takes no work. @param {any} n @returns {string | undefined} */
const because = (n) => n.reason ?? n.mark?.reason ?? n.cordon ?? undefined;

const SORTS = [['name', 'name'], ['granted', 'most granted'], ['used', 'most in use'], ['state', 'not ready first']];

/** @param {{ query: URLSearchParams }} p */
function All({ query }) {
  const b = board('nodes').value;
  if (!b) return html`<${Waiting} />`;
  const rows = b.page.ids.map((/** @type {string} */ id) => b[`node:${id}`]).filter(Boolean);
  const sort = query.get('sort') ?? 'name';
  return html`<h1 class="unseen">Nodes</h1><${Card} id="nodes" title="Nodes" actions=${html`<select aria-label="order" value=${sort} onChange=${(/** @type {Event} */ e) => ask({ sort: /** @type {HTMLSelectElement} */ (e.target).value, from: '' })}>${SORTS.map(([name, word]) => html`<option value=${name}>${word}</option>`)}</select><${Find} query=${query} label="filter nodes" /><${Pager} page=${b.page} />`}>
    ${rows.length ? html`<div class="scroll"><table class="rows"><thead><tr><th>node</th><th>state</th><th class="wide">granted and in use</th><th class="n">granted</th><th class="n">in use</th><th class="n">of</th><th class="n hide">free</th><th class="n hide">ctr</th></tr></thead>
      <tbody>${rows.map((/** @type {any} */ n) => html`<tr key=${n.id}><td><a href=${to('node', n.id)} data-row>${n.id}</a>${n.rack ? html`<small>${n.rack}</small>` : ''}</td><td><${State} of=${n.state} title=${because(n)} />${because(n) ? html`<small>${because(n)}</small>` : ''}</td>
        <td class="wide"><${Meter} granted=${n.allocated} used=${n.used} whole=${n.memory} heap=${n.heap} /></td><td class="n">${percentText(n.allocated, n.memory)}</td><td class="n">${percentText(n.used, n.memory)}</td><td class="n">${bytes(n.memory)}</td><td class="n hide">${bytes(Math.max(0, n.memory - n.allocated))}</td><td class="n hide">${n.containers}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>${b.page.all ? 'No node matches the filter.' : 'No node has registered.'}<//>`}<//>`;
}

export const all = {
  topics: () => ['nodes'],
  /** @param {URLSearchParams} query */
  more: (query) => pick(query, ['from', 'find', 'sort']),
  Page: All,
};

/** @param {{ id: string }} p */
function One({ id }) {
  const b = board(`node:${id}`).value;
  const gone = missing(`node:${id}`).value;
  if (gone) return html`<${Nowhere} what=${gone} />`;
  if (!b) return html`<${Waiting} />`;
  const n = b.row;
  const held = Object.entries(b).filter(([name]) => name.startsWith('container:')).map(([, c]) => c).sort((x, y) => x.granted - y.granted || (x.id < y.id ? -1 : 1));
  const pairs = (/** @type {Record<string, string> | undefined} */ all) => Object.entries(all ?? {}).map(([k, v]) => (v ? `${k}=${v}` : k));
  const labels = [...(b.node.traits.labels ?? []), ...pairs(b.node.traits.attributes)];
  const taints = pairs(b.node.traits.taints);
  const back = n.mark ? 'undrain' : 'uncordon';
  return html`<div class="title"><h1>${id}</h1><${State} of=${n.state} /><span class="hint">${n.rack ? `rack ${n.rack} · ` : ''}enforcer ${n.enforcer}${n.enforcer === 'poll' ? ' (not kernel-enforced)' : ''} · nodeagent ${b.node.version}${labels.length ? ` · ${labels.join(' ')}` : ''}${taints.length ? ` · tainted with ${taints.join(' ')}` : ''}</span></div>
    ${n.reason || n.mark || n.cordon !== null ? html`<p class="note">${n.reason ?? ''} ${n.mark ? `marked: ${n.mark.reason}${n.mark.drained ? ', and empty' : ''}` : ''} ${n.cordon === null ? '' : `cordoned, gets nothing new: ${n.cordon || 'no reason was given'}`}</p>` : ''}
    <div class="chips"><${Chip} figure=${bytes(n.allocated)} what="granted" more=${`${percentText(n.allocated, n.memory)} of ${bytes(n.memory)}`} /><${Chip} figure=${bytes(n.used)} what="in use by containers" more=${percentText(n.used, n.memory)} />
      <${Chip} figure=${bytes(Math.max(0, n.memory - n.allocated - (n.unattributed ?? 0)))} what="free" more="to be granted" />${n.unattributed ? html`<${Chip} figure=${bytes(n.unattributed)} what="left behind" more="by ended containers" tone="bad" />` : ''}<${Chip} figure=${`${n.cpus_allocated} / ${n.cpus}`} what="cpus granted" /><${Chip} figure=${n.containers} what="containers" /></div>
    <${Card} id="topology" title="Containers">${held.length ? html`<${Topology} nodes=${[{ ...n, held }]} />
      <div class="scroll"><table class="rows"><thead><tr><th>container</th><th>state</th><th>tasks</th><th class="n">limit</th><th class="n">in use</th><th class="n hide">age</th></tr></thead><tbody>${held.slice(0, 300).map((c) => html`<tr key=${c.id}><td><a href=${to('container', c.id)} data-row>${c.id}</a></td><td><${State} of=${c.state} /></td><td>${c.request ? c.tasks.join(' ') || c.request : 'master'}</td><td class="n">${bytes(c.memory)}</td><td class="n">${bytes(c.used)}</td><td class="n hide"><${Ago} at=${c.granted} /></td></tr>`)}</tbody></table></div>` : html`<${Empty}>It has no container.<//>`}<//>
    <${Card} id="next" title="Next">${n.mark || n.cordon !== null ? html`<${Command} text=${`rmctl node ${back} ${id}`} />` : html`<${Command} text=${`rmctl node cordon ${id} --reason upgrade`} /><${Command} text=${`rmctl node drain ${id} --reason upgrade`} />`}<${Twin} head=${['resource', 'offers', 'granted']} rows=${[['memory', bytes(n.memory), bytes(n.allocated)], ['heap budgets', '–', bytes(n.heap)], ['cpus', n.cpus, n.cpus_allocated]]} /><//>`;
}

export const one = {
  /** @param {string} id */
  topics: (id) => [`node:${id}`],
  Page: One,
};
