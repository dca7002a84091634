// The live view of one pool: what the kernel has told, and numbers and lines made of it. `pool.js` follows it in one module.

const KEPT = { decisions: 200, points: 450 }; // as in the protocol of the panel
const WIDTH = 300;
const HEIGHT = 56;
const LINES = ['queued', 'running', 'desired', 'current'];

/** USD, with more digits for little. */
const money = usd => `$${usd.toFixed(usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2)}`;
const share = value => (value == null ? '' : `${Math.round(value * 100)}%`);
const clock = at => new Date(at * 1000).toTimeString().slice(0, 8);
const two = value => String(value).padStart(2, '0');
const duration = seconds => {
  const all = Math.max(0, Math.floor(seconds));
  const hours = Math.floor(all / 3600);
  const minutes = Math.floor((all % 3600) / 60);
  return hours ? `${hours}:${two(minutes)}:${two(all % 60)}` : `${minutes}:${two(all % 60)}`;
};

/** What the kernel has told. */
class Store {
  constructor(tables) {
    this.take({ kind: 'snapshot', tables });
  }

  take(message) {
    if (message.kind === 'snapshot') {
      this.tables = {};
    }
    for (const [table, keys] of Object.entries(message.gone ?? {})) {
      keys.forEach(key => this.tables[table]?.delete(key));
    }
    for (const [table, rows] of Object.entries(message.tables ?? {})) {
      const known = (this.tables[table] ??= new Map());
      Object.entries(rows).forEach(([key, row]) => known.set(key, row));
      const excess = known.size - (KEPT[table] ?? Infinity);
      [...known.keys()].slice(0, Math.max(0, excess)).forEach(key => known.delete(key));
    }
  }

  rows(table) {
    return [...(this.tables[table]?.values() ?? [])];
  }

  get pool() {
    return this.rows('pools')[0];
  }
}

/** The staircases of the chart, and the value at its top. */
function stairs(points, now) {
  const age = now - (points[0]?.at ?? now);
  const span = Math.min(900, Math.max(60, age));
  const begin = now - span;
  const shown = points.slice(Math.max(0, points.findLastIndex(point => point.at <= begin)));
  const top = Math.max(1, ...shown.flatMap(point => LINES.map(line => point[line])));
  const x = at => ((Math.max(0, at - begin) / span) * WIDTH).toFixed(1);
  const y = value => (HEIGHT - (value / top) * HEIGHT).toFixed(1);
  const path = line =>
    shown.map((p, i) => (i ? `H${x(p.at)}V${y(p[line])}` : `M${x(p.at)} ${y(p[line])}`)).join('') +
    (shown.length ? `H${WIDTH}` : '');
  return { top, paths: LINES.map(path) };
}
