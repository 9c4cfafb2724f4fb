// Nodes as bars: above what is granted, below what is in use.

import { html } from 'htm/preact';
import { State, Twin } from './parts.js';
import { bytes, percent, percentText, short } from './format.js';
import { to } from './route.js';

/** @param {any} c a container */
function label(c) {
  if (!c.request) return 'master';
  if (!c.tasks.length) return c.app;
  return c.tasks.length === 1 ? c.tasks[0] : `${c.tasks[0]} +${c.tasks.length - 1}`;
}

/** @param {{ c: any, whole: number }} p */
function Tile({ c, whole }) {
  const split = c.heap !== null && c.heap !== undefined && c.heap < c.memory;
  const heap = split ? c.heap : c.memory;
  const used = c.used ?? 0;
  const hot = used > c.memory * 0.9;
  const text = `${c.id}: ${bytes(c.memory)} granted${split ? ` (heap ${bytes(heap)}, overhead ${bytes(c.memory - heap)})` : ''}, ${bytes(c.used)} in use, ${c.state}${c.tasks.length ? `, runs ${c.tasks.join(' ')}` : ''}`;
  return html`<a class=${`tile ${hot ? 'hot' : ''} ${c.state}`} style=${{ width: `${percent(c.memory, whole)}%` }} href=${to('container', c.id)} title=${text} aria-label=${text}>
    <span class="strip top"><i class="heap" style=${{ width: `${percent(heap, c.memory)}%` }}></i>${split ? html`<i class="over" style=${{ width: `${percent(c.memory - heap, c.memory)}%` }}></i>` : ''}</span>
    <span class="strip low"><i class="use" style=${{ width: `${Math.min(100, percent(used, c.memory))}%` }}></i></span>
    <span class="name">${c.wanted && c.wanted > c.memory ? '▲ ' : ''}${label(c)}</span>
  </a>`;
}

/** @param {{ nodes: any[], largest?: number }} p */
export function Topology({ nodes, largest }) {
  const most = largest ?? Math.max(1, ...nodes.map((n) => n.memory));
  return html`<div class="topology">
    ${nodes.map((n) => {
      const left = Math.min(n.unattributed ?? 0, Math.max(0, n.memory - n.allocated));
      const free = Math.max(0, n.memory - n.allocated - left);
      const told = n.held.reduce((/** @type {number} */ sum, /** @type {any} */ c) => sum + c.memory, 0);
      const rest = Math.max(0, n.allocated - told);
      return html`<div class=${`node ${n.state}`} key=${n.id} data-node=${n.id}>
        <a class="who" href=${to('node', n.id)} data-row><b>${n.id}</b>
          ${n.state === 'ready' ? '' : html`<${State} of=${n.state} title=${n.reason ?? n.mark?.reason ?? n.cordon ?? undefined} />`}
          <small>${short(n.allocated)} / ${short(n.memory)} · ${n.containers} ctr</small></a>
        <div class="bar"><div class="box" style=${{ width: `${Math.max(12, percent(n.memory, most))}%` }}>
          ${n.held.map((/** @type {any} */ c) => html`<${Tile} key=${c.id} c=${c} whole=${n.memory} />`)}
          ${rest > 0 ? html`<span class="tile rest" style=${{ width: `${percent(rest, n.memory)}%` }} title=${`${bytes(rest)} in further containers`}></span>` : ''}
          ${left > 0 ? html`<span class="tile left" style=${{ width: `${percent(left, n.memory)}%` }} title=${`${bytes(n.unattributed)} left behind by ended containers: no container can have it`}></span>` : ''}
          ${free > 0 ? html`<span class="free" style=${{ width: `${percent(free, n.memory)}%` }}>${percent(free, most) > 7 ? `${short(free)} free` : ''}</span>` : ''}
        </div></div>
      </div>`;
    })}
    <ul class="legend" aria-label="legend"><li><i class="heap"></i>granted: heap, or all where none is declared</li><li><i class="over"></i>overhead granted</li><li><i class="use"></i>in use</li><li><i class="hot"></i>over 90 % of its limit</li><li><i class="left"></i>left behind by ended containers</li><li><i class="free"></i>free</li></ul>
    <${Twin} head=${['node', 'state', 'granted', 'of', 'in use', 'left behind', 'containers']} rows=${nodes.map((n) => [n.id, n.state, bytes(n.allocated), `${bytes(n.memory)} (${percentText(n.allocated, n.memory)})`, bytes(n.used), bytes(n.unattributed ?? 0), n.containers])} />
  </div>`;
}
