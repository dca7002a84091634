// The live view of one pool, for anywidget: what `skyward_jupyter.view.live` sends, drawn. All text is set as text.
// `model.js` comes before it in one module.

const NODES = 60; // rows that are drawn; the rest is counted
const DECISIONS = 30;
const PAGE = Math.random().toString(36).slice(2); // another one after a reload
const PATIENCE = 500; // milliseconds until a command that nobody has heard is said to wait
const LONGEST = 60_000; // and at most those between two tries to be heard at all

/** An element: its class, its text or children, and its attributes. */
function make(tag, name, content = [], attributes = {}) {
  const element = document.createElement(tag);
  element.className = name ? `skyward-view-${name}` : '';
  element.append(...[content].flat());
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  return element;
}

function makeSvg(tag, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  return element;
}

/** Set a text only where it is another one: selections and screen readers stay undisturbed. */
function say(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Have `parent` hold one child for each item, in order, and keep those that are there. */
function sync(parent, items, keyOf, create, fill) {
  const known = new Map([...parent.children].map(child => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    const child = known.get(key) ?? create(item);
    known.delete(key);
    child.dataset.key = key;
    if (parent.children[index] !== child) {
      parent.insertBefore(child, parent.children[index] ?? null);
    }
    fill(child, item);
  });
  known.forEach(child => child.remove());
}

const POOL_STATES = {
  ready: ['●', 'ready', 'good'],
  stopping: ['◌', 'stopping', 'busy'],
  closed: ['○', 'closed', 'quiet']
};

function poolState(pool) {
  if (pool.failure && pool.state === 'ready') {
    return ['▲', 'trouble', 'bad'];
  }
  return POOL_STATES[pool.state] ?? ['◔', 'starting', 'busy'];
}

function nodeState(node) {
  switch (node.state) {
    case 'active':
      return node.busy ? ['●', 'busy', 'good'] : ['○', 'idle', 'quiet'];
    case 'draining':
      return ['◒', 'draining', 'busy'];
    case 'stopping':
      return ['◌', 'stopping', 'quiet'];
    default:
      return ['◔', node.phase, 'busy'];
  }
}

function showState(element, [icon, word, tone]) {
  element.dataset.tone = tone;
  say(element.firstChild, icon);
  say(element.lastChild, word);
}

const stateOf = () => make('span', 'state', [make('span', '', '', { 'aria-hidden': 'true' }), make('span', '')]);

/** One place where the pool is shown. */
class View {
  constructor(model, el) {
    this.model = model;
    this.store = new Store(model.get('first'));
    this.id = Math.random().toString(36).slice(2);
    this.asked = new Map();
    this.isHeard = false;
    this.pause = 1000;
    this.build();
    el.append(this.root);
    this.hear = message => this.heard(message);
    this.seen = () => this.look();
    model.on('msg:custom', this.hear);
    document.addEventListener('visibilitychange', this.seen);
    window.addEventListener('pagehide', (this.gone = () => this.send({ kind: 'leave' })));
    this.timer = window.setInterval(() => this.tick(), 1000);
    this.draw();
    this.look();
  }

  build() {
    this.name = make('b', 'name');
    this.state = stateOf();
    this.where = make('span', 'where');
    this.stop = make('button', 'button', 'Stop', { type: 'button' });
    this.stop.onclick = () => this.askToStop();
    this.rate = make('span', '');
    this.spent = make('span', '');
    this.left = make('span', '');
    this.counts = ['running', 'queued', 'done', 'failed'].map(what => [what, make('b', '', '0')]);
    const counted = this.counts.map(([what, number]) => make('span', `count-${what}`, [number, ` ${what}`]));
    this.failure = make('p', 'failure');
    this.question = make('p', 'question');
    this.bounds = ['min', 'max'].map(which => {
      const label = which === 'min' ? 'Fewest nodes' : 'Most nodes';
      const input = make('input', 'number', '', { type: 'number', min: which === 'min' ? '0' : '1', 'aria-label': label });
      input.onchange = () => this.scale();
      input.onkeydown = event => {
        if (event.key === 'Enter' || event.key === 'Escape') {
          input.value = event.key === 'Enter' ? input.value : this.store.pool[which];
          input.blur(); // which is when it changes; the notebook around it has a use for Enter of its own
          event.preventDefault();
        }
      };
      return input;
    });
    this.total = make('span', 'total');
    this.nodes = make('ul', 'nodes', [], { 'aria-label': 'Nodes' });
    this.rest = make('p', 'empty');
    this.paths = LINES.map(line => makeSvg('path', { class: `skyward-view-line-${line}` }));
    this.svg = makeSvg('svg', { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: 'none', role: 'img' });
    this.svg.append(...this.paths);
    this.legend = LINES.map(line => make('b', '', '–'));
    const captions = LINES.map((line, i) => make('span', `key-${line}`, [`${line} `, this.legend[i]]));
    this.decisions = make('ul', 'decisions', [], { 'aria-label': 'Decisions, the newest first' });
    this.still = make('p', 'empty', 'Nothing was decided yet: the pool is as it was opened.');
    this.told = make('p', 'told', '', { role: 'status', 'aria-live': 'polite' });
    const scaling = make('span', 'bounds', ['nodes ', this.bounds[0], ' to ', this.bounds[1]]);
    this.root = make('div', 'root', [
      make('header', 'header', [this.name, this.state, this.where, scaling, this.stop]),
      make('div', 'facts', [
        make('span', 'money', [this.rate, this.spent, this.left]),
        make('span', 'counts', counted)
      ]),
      this.failure,
      this.question,
      make('div', 'columns', [
        make('section', '', [make('h4', '', ['Nodes', this.total]), this.nodes, this.rest]),
        make('section', '', [
          make('h4', '', 'Why it scales'),
          make('figure', 'chart', [this.svg, make('figcaption', '', captions)]),
          this.decisions,
          this.still
        ])
      ]),
      this.told
    ]);
    this.root.setAttribute('data-lm-suppress-shortcuts', 'true'); // keys typed here are no commands of the notebook
    this.question.hidden = this.failure.hidden = true;
  }

  draw() {
    const pool = this.store.pool;
    if (!pool) {
      return;
    }
    say(this.name, pool.name);
    showState(this.state, poolState(pool));
    const elastic = pool.max > pool.min;
    const of = elastic ? `${pool.min}–${pool.max}` : `${pool.desired}`;
    const policy = elastic && pool.policy ? ` · ${pool.policy}` : '';
    say(this.where, `${pool.active} of ${of} nodes · ${pool.provider}${policy}`);
    this.counts.forEach(([what, number]) => say(number, pool[what].toLocaleString('en-US')));
    this.root.dataset.failed = String(pool.failed > 0);
    say(this.failure, pool.failure);
    this.failure.hidden = !pool.failure;
    this.bounds.forEach((input, i) => {
      if (document.activeElement !== input && input.getRootNode().activeElement !== input) {
        input.value = i ? pool.max : pool.min;
      }
      input.disabled = pool.state !== 'ready';
      input.title = `pool.resize((${pool.min}, ${pool.max}))`;
    });
    this.stop.disabled = pool.state === 'stopping' || pool.state === 'closed';
    this.stop.title = 'Give the machines back: pool.close()';
    this.drawNodes();
    this.drawDecisions();
    this.tick();
  }

  drawNodes() {
    const order = node => Number(node.state === 'stopping') * 1e9 + node.rank;
    const all = this.store.rows('nodes').sort((a, b) => order(a) - order(b) || a.machine - b.machine);
    say(this.total, all.length.toLocaleString('en-US'));
    sync(this.nodes, all.slice(0, NODES), node => node.machine, () => this.makeNode(), (row, node) => this.fill(row, node));
    const more = all.length - NODES;
    say(this.rest, all.length ? (more > 0 ? `and ${more.toLocaleString('en-US')} more` : '') : 'No nodes; the first task gets one.');
    this.rest.hidden = all.length > 0 && more <= 0;
  }

  makeNode() {
    const bar = make('span', 'bar', make('span', ''), { 'aria-hidden': 'true' });
    return make('li', 'node', [
      make('span', 'head', '', { title: 'The head' }),
      make('span', 'rank'),
      stateOf(),
      make('span', 'slots'),
      bar,
      make('span', 'used'),
      make('span', 'machine'),
      make('span', 'price')
    ]);
  }

  fill(row, node) {
    const [head, rank, state, slots, bar, used, machine, price] = row.children;
    const gauge = this.store.tables.gauges?.get(`${node.pool}/${node.machine}`);
    const part = gauge?.gpu ?? gauge?.cpu;
    const is_up = node.state === 'active' || node.state === 'draining';
    say(head, node.rank === 0 ? '★' : '');
    say(rank, `${node.rank}`);
    showState(state, nodeState(node));
    say(slots, is_up ? `${node.busy}/${node.slots}` : '');
    bar.style.visibility = is_up && part != null ? '' : 'hidden';
    bar.firstChild.style.width = share(part ?? 0);
    row.asked = is_up ? null : node.asked_at;
    say(used, is_up ? share(part) : this.age(row));
    used.title = is_up ? 'GPU, or CPU where there is none' : 'Since it was asked for';
    say(machine, node.kind);
    say(price, node.price ? `${money(node.price)}/h` : '');
    machine.title = [node.kind, node.address, gauge?.memory != null ? `memory ${share(gauge.memory)}` : '']
      .filter(Boolean)
      .join('\n');
  }

  age(row) {
    return row.asked == null ? '' : duration(Date.now() / 1000 - row.asked);
  }

  drawDecisions() {
    const rows = this.store.rows('decisions').sort((a, b) => b.number - a.number).slice(0, DECISIONS);
    const create = () => make('li', 'decision', [make('time', ''), make('b', ''), make('span', '')]);
    sync(this.decisions, rows, row => row.number, create, (item, row) => {
      const [at, change, why] = item.children;
      const held = row.held_back ? ` (held back: ${row.held_back})` : '';
      say(at, clock(row.at));
      say(change, row.before === row.after ? 'steady' : `${row.before} → ${row.after}`);
      say(why, `${row.reason}${held}${row.times > 1 ? ` ×${row.times}` : ''}`);
      item.title = `${row.queued} queued, ${row.inflight} running, ${row.capacity} slots · ${row.active} up, ${row.booting} booting, ${row.leaving} leaving · by ${row.by === 'policy' ? row.policy : row.by}`;
    });
    this.still.hidden = rows.length > 0;
  }

  /** What grows with time alone. */
  tick() {
    const pool = this.store.pool;
    if (!pool || !this.isLooking()) {
      return;
    }
    if (!this.isHeard && Date.now() > this.lookedAt + this.pause) {
      this.pause = Math.min(LONGEST, this.pause * 2);
      this.look(); // in some front ends the kernel is reached later than the view is there
    }
    const now = Date.now() / 1000;
    const spent = pool.spent + (pool.per_hour * Math.max(0, now - pool.spent_at)) / 3600;
    say(this.rate, `${money(pool.per_hour)}/h`);
    say(this.spent, `${money(spent)} spent`);
    say(this.left, pool.budget == null ? '' : `${money(Math.max(0, pool.budget - spent))} left`);
    const points = this.store.rows('points');
    const { top, paths } = stairs(points, now);
    paths.forEach((d, i) => this.paths[i].setAttribute('d', d));
    this.svg.setAttribute('aria-label', `Tasks and nodes over time; at most ${top}`);
    const last = points.at(-1);
    LINES.forEach((line, i) => say(this.legend[i], last ? last[line].toLocaleString('en-US') : '–'));
    for (const row of this.nodes.children) {
      if (row.asked != null) {
        say(row.children[5], this.age(row));
      }
    }
  }

  // What is said to the kernel, and what it says.

  isLooking() {
    return document.visibilityState !== 'hidden';
  }

  look() {
    this.lookedAt = Date.now();
    this.send({ kind: this.isLooking() ? 'look' : 'leave', page: PAGE });
  }

  /** Whether there is somebody to send it to: in a page without a kernel there is not. */
  send(message) {
    try {
      this.model.send({ view: this.id, ...message });
      return true;
    } catch {
      return false;
    }
  }

  command(kind, fields, doing) {
    const id = `${this.id}.${this.asked.size}`;
    const late = `${doing} This waits for the cell that the kernel runs, or for you to interrupt it.`;
    say(this.told, doing);
    this.told.dataset.tone = '';
    this.asked.set(id, window.setTimeout(() => say(this.told, late), PATIENCE));
    if (!this.send({ id, kind, pool: this.store.pool.name, ...fields })) {
      window.clearTimeout(this.asked.get(id));
      say(this.told, 'There is no kernel behind this view.');
      this.told.dataset.tone = 'bad';
    }
  }

  heard(message) {
    this.isHeard = true;
    if (message.kind === 'answer') {
      if (this.asked.has(message.id)) {
        window.clearTimeout(this.asked.get(message.id));
        if (message.state !== 'heard') {
          say(this.told, message.text);
          this.told.dataset.tone = message.state === 'refused' ? 'bad' : '';
        }
      }
      return;
    }
    this.store.take(message);
    this.draw();
  }

  scale() {
    const pool = this.store.pool;
    const [min, max] = this.bounds.map(input => Math.max(0, Math.round(input.valueAsNumber)));
    if (Number.isNaN(min + max) || (min === pool.min && max === pool.max)) {
      this.draw();
      return;
    }
    const changedMin = min !== pool.min;
    const least = changedMin ? min : Math.min(min, max);
    const most = Math.max(1, changedMin ? Math.max(min, max) : max);
    this.command('scale', { min: least, max: most }, `Scaling to ${least} to ${most} nodes.`);
  }

  askToStop() {
    const { running, queued } = this.store.pool;
    if (running + queued === 0) {
      this.command('stop-pool', {}, 'Giving the machines back.');
      return;
    }
    const yes = make('button', 'button', 'Stop', { type: 'button' });
    const no = make('button', 'button', 'Keep', { type: 'button' });
    const close = () => (this.question.hidden = true);
    no.onclick = close;
    yes.onclick = () => {
      close();
      this.command('stop-pool', {}, 'Stopping the tasks, and giving the machines back.');
    };
    this.question.onkeydown = event => event.key === 'Escape' && close();
    const tasks = running + queued === 1 ? '1 task' : `${running + queued} tasks`;
    this.question.replaceChildren(`The work of ${tasks} that did not end is lost.`, yes, no);
    this.question.hidden = false;
    no.focus();
  }

  end() {
    this.send({ kind: 'leave' });
    this.model.off('msg:custom', this.hear);
    document.removeEventListener('visibilitychange', this.seen);
    window.removeEventListener('pagehide', this.gone);
    window.clearInterval(this.timer);
    this.asked.forEach(timer => window.clearTimeout(timer));
    this.root.remove();
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.end();
  }
};
