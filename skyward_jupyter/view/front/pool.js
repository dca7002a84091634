// Built from labextension/src/widget: make panel

// src/model/chart.ts
var SPAN = 900;
var SHORTEST = 60;
var LINES = ["queued", "running", "desired", "current"];
function chart(points, now, width, height) {
  const age = now - (points.length ? points[0].at : now);
  const span = Math.min(SPAN, Math.max(SHORTEST, age));
  const begin = now - span;
  const first = points.findLastIndex((point) => point.at <= begin);
  const shown = points.slice(Math.max(0, first));
  const top = Math.max(1, ...shown.flatMap((point) => LINES.map((line) => point[line])));
  const x = (at) => round(Math.max(0, at - begin) / span * width);
  const y = (value) => round(height - value / top * height);
  const lines = Object.fromEntries(
    LINES.map((line) => {
      const steps = shown.map(
        (point, index) => index ? `H${x(point.at)}V${y(point[line])}` : `M${x(point.at)} ${y(point[line])}`
      );
      return [line, steps.length ? `${steps.join("")}H${round(width)}` : ""];
    })
  );
  return { lines, top };
}
function round(value) {
  return Math.round(value * 10) / 10;
}

// src/protocol.ts
var VERSION = 5;
var VIEW_TARGET = "skyward.view";
var KEPT = {
  decisions: 200,
  points: 450,
  output: 200
};
var POOL_STATUSES = {
  new: { word: "not open", icon: "○", tone: "quiet" },
  starting: { word: "starting", icon: "◔", tone: "busy" },
  ready: { word: "ready", icon: "●", tone: "good" },
  failing: { word: "failing", icon: "▲", tone: "bad" },
  budget_reached: { word: "budget reached", icon: "◒", tone: "bad" },
  stopping: { word: "stopping", icon: "◌", tone: "busy" },
  closed: { word: "closed", icon: "○", tone: "quiet" }
};
var NODE_STATUSES = {
  queued: { word: "queued", icon: "◌", tone: "quiet" },
  requested: { word: "requested", icon: "◌", tone: "quiet" },
  starting: { word: "starting", icon: "◔", tone: "busy" },
  idle: { word: "idle", icon: "○", tone: "quiet" },
  keeping: { word: "keeps", icon: "◆", tone: "quiet" },
  busy: { word: "busy", icon: "●", tone: "good" },
  draining: { word: "draining", icon: "◒", tone: "busy" },
  stopping: { word: "stopping", icon: "◌", tone: "quiet" }
};

// src/model/equivalent.ts
function run(command, args) {
  return { kind: "run", command, arguments: args };
}
function bounds(min, max) {
  return min === max ? `${min}` : `${min}:${max}`;
}

// src/model/format.ts
function money(usd) {
  if (usd > 0 && usd < 5e-5) {
    return "<$0.0001";
  }
  const digits = usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}
function duration(seconds) {
  if (seconds < 9.95) {
    return `${Math.max(0, seconds).toFixed(1)} s`;
  }
  if (seconds < 59.5) {
    return `${seconds.toFixed(0)} s`;
  }
  const all = Math.round(seconds);
  const minutes = Math.floor(all / 60);
  return minutes < 60 ? `${minutes} min ${all % 60} s` : `${whole(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}
function clock(at) {
  return new Date(at * 1e3).toTimeString().slice(0, 8);
}
function share(value) {
  return value === null || value === void 0 ? "–" : `${Math.round(value * 100)}%`;
}
function whole(value) {
  return value.toLocaleString("en-US");
}
function spentBy(now, pool) {
  const hours = Math.max(0, now - pool.spent_at) / 3600;
  return pool.spent + pool.per_hour * hours;
}

// src/model/lists.ts
function nodesInOrder(nodes, filter = "") {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return nodes.filter((node) => {
    const text = `${node.rank} ${node.state} ${node.status} ${node.phase} ${node.group} ${node.kind} ${node.kept.join(" ")}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }).sort(
    (a, b) => Number(a.state === "stopping") - Number(b.state === "stopping") || a.rank - b.rank || a.machine - b.machine
  );
}
function decisionsInOrder(rows) {
  return [...rows].sort((a, b) => b.number - a.number);
}

// src/model/states.ts
function poolState(pool, trans) {
  return translated(POOL_STATUSES[pool.status], trans);
}
function nodeState(node, trans) {
  const label = NODE_STATUSES[node.status];
  return node.status === "starting" ? { ...label, word: node.phase } : translated(label, trans);
}
function translated(label, trans) {
  return { ...label, word: trans.__(label.word) };
}

// src/model/store.ts
function empty() {
  return {
    pools: /* @__PURE__ */ new Map(),
    nodes: /* @__PURE__ */ new Map(),
    startup_failures: /* @__PURE__ */ new Map(),
    gauges: /* @__PURE__ */ new Map(),
    tasks: /* @__PURE__ */ new Map(),
    decisions: /* @__PURE__ */ new Map(),
    points: /* @__PURE__ */ new Map(),
    output: /* @__PURE__ */ new Map(),
    cells: /* @__PURE__ */ new Map(),
    orphans: /* @__PURE__ */ new Map()
  };
}
var Store = class {
  rows = empty();
  form = [];
  /** True if there was a snapshot, and no message has been missed since. */
  get isComplete() {
    return this._session !== "";
  }
  /** Apply a message of the kernel, if it is the next one. */
  apply(message) {
    if (message.version !== VERSION) {
      return "incompatible";
    }
    if (message.kind === "snapshot") {
      this.form = message.form;
      this._session = message.session;
    } else if (message.session !== this._session || message.seq !== this._seq + 1) {
      this._session = "";
      return "gap";
    }
    this._seq = message.seq;
    this.take(message);
    return "applied";
  }
  /** Apply the rows of a message, without checking its number. */
  take(message) {
    if (message.kind === "snapshot") {
      this.rows = empty();
    }
    this._drop("gone" in message ? message.gone : {});
    for (const [table, rows] of Object.entries(message.tables)) {
      const known = this.rows[table];
      for (const [key, row] of Object.entries(rows)) {
        known?.set(key, row);
      }
    }
    this._trim();
  }
  /** Clear everything: the kernel was replaced. */
  clear() {
    this.rows = empty();
    this._session = "";
  }
  /** Return the rows of one pool in a table, in order of arrival. */
  of(table, pool) {
    const rows = this.rows[table];
    return [...rows.values()].filter((row) => row.pool === pool);
  }
  _drop(gone) {
    for (const [table, keys] of Object.entries(gone)) {
      const rows = this.rows[table];
      keys.forEach((key) => rows?.delete(key));
    }
    for (const pool of gone.pools ?? []) {
      for (const rows of Object.values(this.rows)) {
        for (const key of [...rows.keys()]) {
          if (key.startsWith(`${pool}/`)) {
            rows.delete(key);
          }
        }
      }
    }
  }
  /** Drop the oldest rows of append-only tables, as the kernel does. */
  _trim() {
    for (const [table, most] of Object.entries(KEPT)) {
      const rows = this.rows[table];
      if (rows.size <= most) {
        continue;
      }
      const counts = /* @__PURE__ */ new Map();
      for (const row of rows.values()) {
        counts.set(row.pool, (counts.get(row.pool) ?? 0) + 1);
      }
      for (const [key, row] of rows) {
        const count = counts.get(row.pool) ?? 0;
        if (count > most) {
          rows.delete(key);
          counts.set(row.pool, count - 1);
        }
      }
    }
  }
  _session = "";
  _seq = 0;
};

// src/widget/elements.ts
function make(tag, name = "", content = [], attributes = {}) {
  const element = document.createElement(tag);
  element.className = name && `skyward-view-${name}`;
  element.append(...[content].flat());
  set(element, attributes);
  return element;
}
function makeSvg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, attributes);
  return element;
}
function set(element, attributes) {
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
}
function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}
function sync(parent, items, keyOf, create, fill) {
  const children = [...parent.children];
  const known = new Map(children.map((child) => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    const child = known.get(key) ?? create();
    known.delete(key);
    child.dataset.key = key;
    if (parent.children[index] !== child) {
      parent.insertBefore(child, parent.children[index] ?? null);
    }
    fill(child, item);
  });
  known.forEach((child) => child.remove());
}

// src/model/subshell.ts
var SUBSHELL_TIMEOUT = 3e3;
async function subshell(comm) {
  const own = comm;
  if (own.subshellStarted === void 0) {
    return;
  }
  if (own.commsOverSubshells === "disabled") {
    await Promise.resolve();
    own.commsOverSubshells = "perCommTarget";
  }
  const late = new Promise((resolve) => setTimeout(resolve, SUBSHELL_TIMEOUT));
  await Promise.race([own.subshellStarted, late]).catch(() => void 0);
}

// src/widget/kernel.ts
var ACK_TIMEOUT = 500;
var FIRST_PAUSE = 1e3;
var LONGEST_PAUSE = 6e4;
var PAGE = Math.random().toString(36).slice(2);
var KernelConnection = class {
  constructor(_model, _listener) {
    this._model = _model;
    this._listener = _listener;
    _model.on("msg:custom", this._onMessage);
    void this._connect();
  }
  _model;
  _listener;
  /** Tell the kernel whether the view is visible; updates are sent to visible views only. */
  setVisible(isVisible) {
    this._isVisible = isVisible;
    this._sentAt = Date.now();
    this._send({ kind: isVisible ? "look" : "leave", page: PAGE });
  }
  /** Repeat the last visibility message until the kernel responds: some front ends connect to it late. */
  tick() {
    if (!this._isConnected && Date.now() > this._sentAt + this._pause) {
      this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
      this.setVisible(this._isVisible);
    }
  }
  /** Send a command to the kernel; `description` is shown meanwhile. */
  command(request, description) {
    const id = `${this._view}.${this._count++}`;
    this._listener.notify(description, false);
    if (!this._send({ id, ...request })) {
      this._listener.notify("This view is not connected to a kernel.", true);
      return;
    }
    const late = `${description} Waiting for the running cell to end or to be interrupted.`;
    this._pending.set(
      id,
      window.setTimeout(() => this._listener.notify(late, false), ACK_TIMEOUT)
    );
  }
  /** Tell the kernel that the view is hidden, and release everything. */
  end() {
    this.setVisible(false);
    this._isOver = true;
    this._model.off("msg:custom", this._onMessage);
    this._pending.forEach((timer) => window.clearTimeout(timer));
    this._comm?.close();
    this._comm = null;
  }
  async _connect() {
    try {
      const comm = this._model.widget_manager?.kernel?.createComm?.(VIEW_TARGET);
      if (!comm) {
        return;
      }
      comm.onClose = () => {
        this._comm = null;
        if (!this._isOver) {
          this.setVisible(this._isVisible);
        }
      };
      await subshell(comm);
      comm.open({ view: this._model.get("key") });
      this._comm = comm;
      if (this._isOver) {
        this.end();
      } else {
        this.setVisible(this._isVisible);
      }
    } catch {
    }
  }
  /** Send a message. Return false if the page has no kernel. */
  _send(message) {
    const whole2 = { view: this._view, ...message };
    try {
      if (this._comm) {
        this._comm.send(whole2);
      } else {
        this._model.send(whole2);
      }
      return true;
    } catch {
      return false;
    }
  }
  _onMessage = (message) => {
    this._isConnected = true;
    if (message.kind !== "answer") {
      this._listener.changed(message);
    } else if (this._pending.has(message.id)) {
      window.clearTimeout(this._pending.get(message.id));
      if (message.state !== "heard") {
        this._listener.notify(message.text, message.state === "refused");
      }
    }
  };
  _view = Math.random().toString(36).slice(2);
  _pending = /* @__PURE__ */ new Map();
  _comm = null;
  _count = 0;
  _isConnected = false;
  _isVisible = false;
  _isOver = false;
  _sentAt = 0;
  _pause = FIRST_PAUSE;
};

// src/widget/translation.ts
var UNTRANSLATED = { __: (text) => text };

// src/widget/rows.ts
var REQUESTED_AT = /* @__PURE__ */ new WeakMap();
function makeState() {
  const icon = make("span", "", "", { "aria-hidden": "true" });
  return make("span", "state", [icon, make("span")]);
}
function showState(element, label) {
  element.dataset.tone = label.tone;
  setText(element.firstChild, label.icon);
  setText(element.lastChild, label.word);
}
function makeNode() {
  return make("li", "node", [
    make("span", "head", "", { title: "Head node" }),
    make("span", "rank"),
    makeState(),
    make("span", "slots"),
    make("span", "bar", make("span"), { "aria-hidden": "true" }),
    make("span", "used"),
    make("span", "machine"),
    make("span", "price")
  ]);
}
function showNode(row, node, gauge) {
  const [head, rank, state, slots, bar, used, machine, price] = [...row.children];
  const part = gauge?.gpu ?? gauge?.cpu;
  const isUp = node.state === "active" || node.state === "draining";
  const isKnown = part !== null && part !== void 0;
  setText(head, node.rank === 0 ? "★" : "");
  setText(rank, `${node.rank}`);
  showState(state, nodeState(node, UNTRANSLATED));
  setText(slots, isUp ? `${node.busy}/${node.slots}` : "");
  bar.style.visibility = isUp && isKnown ? "" : "hidden";
  bar.firstChild.style.width = share(part ?? 0);
  if (isUp || node.asked_at === null) {
    REQUESTED_AT.delete(row);
    setText(used, isUp && isKnown ? share(part) : "");
  } else {
    REQUESTED_AT.set(row, node.asked_at);
    showAge(row, Date.now() / 1e3);
  }
  used.title = isUp ? "GPU, or CPU where there is none" : "Since the machine was requested";
  setText(machine, node.kind);
  setText(price, node.price ? `${money(node.price)}/h` : "");
  const memory = gauge?.memory ?? null;
  const kept = node.kept.length ? `keeps ${node.kept.join(", ")}` : "";
  machine.title = [node.kind, node.address, memory === null ? "" : `memory ${share(memory)}`, kept].filter(Boolean).join("\n");
}
function showAge(row, now) {
  const asked = REQUESTED_AT.get(row);
  if (asked !== void 0) {
    setText(row.children[5], duration(now - asked));
  }
}
function makeDecision() {
  return make("li", "decision", [make("time"), make("b"), make("span")]);
}
function showDecision(item, row) {
  const [at, change, why] = [...item.children];
  const held = row.held_back ? ` (held back: ${row.held_back})` : "";
  const times = row.times > 1 ? ` ×${row.times}` : "";
  setText(at, clock(row.at));
  setText(change, row.before === row.after ? "steady" : `${row.before} → ${row.after}`);
  setText(why, `${row.reason}${held}${times}`);
  item.title = [
    `${row.queued} queued, ${row.inflight} running, ${row.capacity} slots`,
    `${row.active} active, ${row.booting} booting, ${row.leaving} stopping`,
    `by ${row.by === "policy" ? row.policy : row.by}`
  ].join(" · ");
}

// src/widget/view.ts
var WIDTH = 300;
var HEIGHT = 56;
var NODES = 60;
var DECISIONS = 30;
var COUNTS = ["running", "queued", "done", "failed"];
var PoolView = class {
  constructor(model, el) {
    const tables = model.get("first");
    this._store.take({ kind: "snapshot", tables });
    this._build();
    el.append(this._root);
    this._kernel = new KernelConnection(model, {
      changed: (message) => {
        this._store.take(message);
        this._draw();
      },
      notify: (text, isBad) => {
        setText(this._message, text);
        this._message.dataset.tone = isBad ? "bad" : "";
      }
    });
    document.addEventListener("visibilitychange", this._onVisibility);
    window.addEventListener("pagehide", this._onHide);
    this._timer = window.setInterval(() => this._tick(), 1e3);
    this._draw();
    this._onVisibility();
  }
  /** Remove the view. */
  end() {
    this._kernel.end();
    document.removeEventListener("visibilitychange", this._onVisibility);
    window.removeEventListener("pagehide", this._onHide);
    window.clearInterval(this._timer);
    this._root.remove();
  }
  get _pool() {
    return this._store.rows.pools.values().next().value;
  }
  _build() {
    this._stop.onclick = () => this._askToStop();
    this._svg.append(...this._paths);
    const counted = COUNTS.map((what, i) => make("span", `count-${what}`, [this._counts[i], ` ${what}`]));
    const captions = LINES.map((line, i) => make("span", `key-${line}`, [`${line} `, this._legend[i]]));
    const bounds2 = make("span", "bounds", ["nodes ", this._least, " to ", this._most]);
    const figure = make("figure", "chart", [this._svg, make("figcaption", "", captions)]);
    this._root.append(
      make("header", "header", [this._name, this._state, this._where, bounds2, this._stop]),
      make("div", "facts", [
        make("span", "money", [this._rate, this._spent, this._left]),
        make("span", "counts", counted)
      ]),
      this._failure,
      this._question,
      make("div", "columns", [
        make("section", "", [make("h4", "", ["Nodes", this._total]), this._nodes, this._rest]),
        make("section", "", [make("h4", "", "Scaling"), figure, this._decisions, this._noDecisions])
      ]),
      this._message
    );
    this._question.hidden = this._failure.hidden = true;
  }
  /** Create the input of one of the two bounds; `current` returns its value. */
  _bound(label, min, current) {
    const input = make("input", "number", "", { type: "number", min, "aria-label": label });
    input.onchange = () => this._scale();
    input.onkeydown = (event) => {
      if (event.key === "Enter" || event.key === "Escape") {
        if (event.key === "Escape" && this._pool) {
          input.value = String(current(this._pool));
        }
        input.blur();
        event.preventDefault();
      }
    };
    return input;
  }
  _draw() {
    const pool = this._pool;
    if (!pool) {
      return;
    }
    setText(this._name, pool.name);
    showState(this._state, poolState(pool, UNTRANSLATED));
    const elastic = pool.max > pool.min;
    const of = elastic ? `${whole(pool.min)}–${whole(pool.max)}` : whole(pool.desired);
    const policy = elastic && pool.policy ? ` · ${pool.policy}` : "";
    setText(this._where, `${whole(pool.active)} of ${of} nodes · ${pool.provider}${policy}`);
    COUNTS.forEach((what, i) => setText(this._counts[i], whole(pool[what])));
    this._root.dataset.failed = String(pool.failed > 0);
    setText(this._failure, pool.failure);
    this._failure.hidden = !pool.failure;
    for (const [input, value] of [
      [this._least, pool.min],
      [this._most, pool.max]
    ]) {
      if (input.getRootNode().activeElement !== input) {
        input.value = String(value);
      }
      input.disabled = pool.state !== "ready";
      input.title = `pool.resize((${pool.min}, ${pool.max}))`;
    }
    this._stop.disabled = pool.state === "stopping" || pool.state === "closed";
    this._drawNodes();
    this._drawDecisions();
    this._tick();
  }
  _drawNodes() {
    const { nodes, gauges } = this._store.rows;
    const all = nodesInOrder([...nodes.values()]);
    const more = all.length - NODES;
    setText(this._total, whole(all.length));
    sync(
      this._nodes,
      all.slice(0, NODES),
      (node) => node.machine,
      makeNode,
      (row, node) => showNode(row, node, gauges.get(`${node.pool}/${node.machine}`))
    );
    setText(this._rest, all.length ? `and ${whole(more)} more` : "No nodes; the first task starts one.");
    this._rest.hidden = all.length > 0 && more <= 0;
  }
  _drawDecisions() {
    const rows = decisionsInOrder([...this._store.rows.decisions.values()]);
    sync(this._decisions, rows.slice(0, DECISIONS), (row) => row.number, makeDecision, showDecision);
    this._noDecisions.hidden = rows.length > 0;
  }
  /** Draw the values that grow with time. */
  _tick() {
    const pool = this._pool;
    if (!pool || document.visibilityState === "hidden") {
      return;
    }
    this._kernel.tick();
    const now = Date.now() / 1e3;
    const spent = spentBy(now, pool);
    setText(this._rate, `${money(pool.per_hour)}/h`);
    setText(this._spent, `${money(spent)} spent`);
    setText(this._left, pool.budget === null ? "" : `${money(Math.max(0, pool.budget - spent))} left`);
    const points = [...this._store.rows.points.values()];
    const { lines, top } = chart(points, now, WIDTH, HEIGHT);
    const last = points.at(-1);
    LINES.forEach((line, i) => {
      this._paths[i].setAttribute("d", lines[line]);
      setText(this._legend[i], last ? whole(last[line]) : "–");
    });
    this._svg.setAttribute("aria-label", `Tasks and nodes over time; maximum ${top}`);
    for (const row of this._nodes.children) {
      showAge(row, now);
    }
  }
  _scale() {
    const pool = this._pool;
    const [min, max] = [this._least, this._most].map((input) => Math.max(0, Math.round(input.valueAsNumber)));
    if (!pool || Number.isNaN(min + max) || min === pool.min && max === pool.max) {
      this._draw();
      return;
    }
    const changedMin = min !== pool.min;
    const least = changedMin ? min : Math.min(min, max);
    const most = Math.max(1, changedMin ? Math.max(min, max) : max);
    const request = run("scale", { pool: pool.name, nodes: bounds(least, most) });
    this._kernel.command(request, `Scaling to ${least} to ${most} nodes.`);
  }
  _askToStop() {
    const pool = this._pool;
    if (!pool) {
      return;
    }
    const request = run("down", { pool: pool.name });
    const left = pool.running + pool.queued;
    if (left === 0) {
      this._kernel.command(request, "Terminating the machines.");
      return;
    }
    const yes = make("button", "button", "Stop", { type: "button" });
    const no = make("button", "button", "Keep", { type: "button" });
    const close = () => {
      this._question.hidden = true;
    };
    no.onclick = close;
    yes.onclick = () => {
      close();
      this._kernel.command(request, "Cancelling the tasks and terminating the machines.");
    };
    this._question.onkeydown = (event) => event.key === "Escape" && close();
    const tasks = left === 1 ? "1 unfinished task" : `${whole(left)} unfinished tasks`;
    this._question.replaceChildren(`${tasks} will be lost.`, yes, no);
    this._question.hidden = false;
    no.focus();
  }
  _onVisibility = () => this._kernel.setVisible(document.visibilityState !== "hidden");
  _onHide = () => this._kernel.setVisible(false);
  _store = new Store();
  _kernel;
  _timer;
  // Keys that are typed here must not trigger shortcuts of the notebook.
  _root = make("div", "root", [], { "data-lm-suppress-shortcuts": "true" });
  _name = make("b", "name");
  _state = makeState();
  _where = make("span", "where");
  _least = this._bound("Minimum nodes", "0", (pool) => pool.min);
  _most = this._bound("Maximum nodes", "1", (pool) => pool.max);
  _stop = make("button", "button", "Stop", {
    type: "button",
    title: "Terminate the machines: pool.close()"
  });
  _rate = make("span");
  _spent = make("span");
  _left = make("span");
  _counts = COUNTS.map(() => make("b", "", "0"));
  _failure = make("p", "failure");
  _question = make("p", "question");
  _total = make("span", "total");
  _nodes = make("ul", "nodes", [], { "aria-label": "Nodes" });
  _rest = make("p", "empty");
  _paths = LINES.map((line) => makeSvg("path", { class: `skyward-view-line-${line}` }));
  _svg = makeSvg("svg", {
    viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`,
    preserveAspectRatio: "none",
    role: "img"
  });
  _legend = LINES.map(() => make("b", "", "–"));
  _decisions = make("ul", "decisions", [], { "aria-label": "Scaling decisions, the newest first" });
  _noDecisions = make("p", "empty", "No scaling decisions yet.");
  _message = make("p", "told", "", { role: "status", "aria-live": "polite" });
};

// src/widget/index.ts
var index_default = {
  render({ model, el }) {
    const view = new PoolView(model, el);
    return () => view.end();
  }
};
export {
  index_default as default
};
