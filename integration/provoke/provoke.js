// Fills one kind of Node's memory, slowly enough to be watched. Argument: which kind.
const kept = [];
const step = {
  heap: () => { for (let i = 0; i < 2000; i++) kept.push({ a: i, b: [i, i + 1, i + 2], c: `${i}-${kept.length}` }); },
  buffers: () => { kept.push(Buffer.alloc(1 << 20, 1)); },
}[process.argv[2]];
setInterval(step, 8);
