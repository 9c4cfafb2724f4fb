// One container: its memory as its node measured it, and what runs in it.

import { html } from 'htm/preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { Ago, Card, Chip, Command, Empty, Nowhere, State, Twin, Waiting } from '../parts.js';
import { Chart, alone } from '../chart.js';
import { Ladder } from '../ladder.js';
import { bytes, percentText, span } from '../format.js';
import { to } from '../route.js';
import { past, points } from '../history.js';
import { board, missing } from '../stream.js';

/** @param {string} id */
export const topics = (id) => [`container:${id}`];

/** @param {any} reason */
const word = (reason) => (reason.kind === 'exit' ? `exit(${reason.code})` : reason.kind === 'signal' ? `signal(${reason.signal})` : reason.kind);

/** @param {{ id: string }} p */
export function Page({ id }) {
  const b = board(`container:${id}`).value;
  const gone = missing(`container:${id}`).value;
  const [told, set] = useState(/** @type {any} */ (null));
  const over = Boolean(b?.container.reason);
  useEffect(() => {
    let asked = true;
    fetch(`../v1/containers/${id}/timeline`).then((r) => (r.ok ? r.json() : { samples: [] })).catch(() => ({ samples: [] })).then((t) => asked && set({ ...t, at: Date.now() }));
    return () => void (asked = false);
  }, [id, over]);
  const c = b?.container;
  const lines = useMemo(() => {
    if (!c || !told) return null;
    const samples = told.samples;
    const zero = over ? c.granted : told.at - (samples.length ? samples[samples.length - 1].at_ms : 0);
    return alone(samples, over ? [] : past(id), zero, c.resource.memory, c.reason?.kind === 'exit' && c.reason.code === 0 ? 'success' : null);
  }, [told, points.value, over, c?.version]);
  if (gone) return html`<${Nowhere} what=${gone} />`;
  if (!c) return html`<${Waiting} />`;
  return html`<div class="title"><h1>${id}</h1><${State} of=${c.state} /><span class="hint"><a href=${to('job', id.replace(/\.e\d+\.c\d+$/, ''))}>${id.replace(/\.e\d+\.c\d+$/, '')}</a> · ${c.request ? `request ${c.request}` : 'application master'} on <a href=${to('node', c.node)}>${c.node}</a></span></div>
    <div class="chips"><${Chip} figure=${bytes(c.resource.memory)} what="limit" more=${`${c.resource.cpus} cpus · version ${c.version}`} />
      <${Chip} figure=${bytes(c.used ?? c.peak)} what=${c.used ? 'in use' : 'peak'} more=${c.used ? percentText(c.used, c.resource.memory) : c.peak ? percentText(c.peak, c.resource.memory) : ''} />
      <${Chip} figure=${c.ended ? span(c.ended - c.granted) : html`<${Ago} at=${c.granted} />`} what=${c.ended ? 'from grant to end' : 'since its grant'} more=${`run ${c.attempt} of its master`} />
      ${c.reason ? html`<${Chip} figure=${word(c.reason)} what="end" tone=${/oom|stalled/.test(word(c.reason)) ? 'bad' : ''} />` : ''}
      ${c.wanted ? html`<${Chip} figure=${bytes(c.wanted.resource.memory)} what="on its way" more="another size" tone="warn" />` : ''}</div>
    <${Card} id="timeline" title="Memory" hint="as its node measured it">${lines?.xs.length ? html`<${Chart} lines=${lines} label=${`memory of ${id}`} /><${Twin} head=${['after', 'in use', 'limit']} rows=${lines.xs.map((x, i) => [span(x * 1000), bytes(lines.used[i]), bytes(lines.limit[i])]).filter((_r, i) => i % Math.ceil(lines.xs.length / 40) === 0)} />` : html`<${Empty}>${told ? 'Its node has no measurements of it.' : 'Asking its node…'}<//>`}<//>
    <${Card} id="tasks" title="Tasks in it">${b.tasks?.length ? html`<${Ladder} rows=${b.tasks.map((/** @type {any} */ row) => ({ app: id.replace(/\.e\d+\.c\d+$/, ''), row }))} />` : html`<${Empty}>Its master has reported no tasks.<//>`}<//>
    <${Card} id="next" title="Next"><${Command} text=${`rmctl logs ${id} --stderr`} /><${Command} text=${`rmctl diagnose ${id}`} /><//>`;
}
