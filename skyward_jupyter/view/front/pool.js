// Built from labextension/src/widget: make panel

// src/model/chart.ts
var SPAN = 900;
var SHORTEST = 60;
var LINES = [
  "queued",
  "running",
  "desired",
  "current"
];
function chart(points, now, width, height) {
  const age = now - (points.length ? points[0].at : now);
  const span = Math.min(SPAN, Math.max(SHORTEST, age));
  const begin = now - span;
  const first = points.findLastIndex((point) => point.at <= begin);
  const shown = points.slice(Math.max(0, first));
  const top = Math.max(
    1,
    ...shown.flatMap((point) => LINES.map((line) => point[line]))
  );
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

// src/model/format.ts
function money(usd) {
  const digits = usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2;
  return `$${usd.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}
function duration(seconds) {
  const whole2 = Math.max(0, Math.floor(seconds));
  const hours = Math.floor(whole2 / 3600);
  const minutes = Math.floor(whole2 % 3600 / 60);
  const rest = String(whole2 % 60).padStart(2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
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
    const text = `${node.rank} ${node.state} ${node.phase} ${node.group} ${node.kind} ${node.kept.join(" ")}`.toLowerCase();
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
  if (pool.broke && pool.state === "ready") {
    return { icon: "◒", word: trans.__("budget reached"), tone: "bad" };
  }
  if (pool.failure && pool.state === "ready") {
    return { icon: "▲", word: trans.__("trouble"), tone: "bad" };
  }
  switch (pool.state) {
    case "ready":
      return { icon: "●", word: trans.__("ready"), tone: "good" };
    case "stopping":
      return { icon: "◌", word: trans.__("stopping"), tone: "busy" };
    case "closed":
      return { icon: "○", word: trans.__("closed"), tone: "quiet" };
    default:
      return { icon: "◔", word: trans.__("starting"), tone: "busy" };
  }
}
function nodeState(node, trans) {
  switch (node.state) {
    case "active":
      if (node.busy) {
        return { icon: "●", word: trans.__("busy"), tone: "good" };
      }
      return node.kept.length ? { icon: "◆", word: trans.__("keeps"), tone: "quiet" } : { icon: "○", word: trans.__("idle"), tone: "quiet" };
    case "draining":
      return { icon: "◒", word: trans.__("draining"), tone: "busy" };
    case "stopping":
      return { icon: "◌", word: trans.__("stopping"), tone: "quiet" };
    default:
      return ["queued", "requested"].includes(node.phase) ? { icon: "◌", word: node.phase, tone: "quiet" } : { icon: "◔", word: node.phase, tone: "busy" };
  }
}

// src/protocol.ts
var VERSION = 4;
var VIEW_TARGET = "skyward.view";
var KEPT = {
  decisions: 200,
  points: 450,
  output: 200
};

// src/model/store.ts
function empty() {
  return {
    pools: /* @__PURE__ */ new Map(),
    nodes: /* @__PURE__ */ new Map(),
    troubles: /* @__PURE__ */ new Map(),
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
  /** Whether there was a snapshot, and nothing has been missed since. */
  get whole() {
    return this._session !== "";
  }
  /** Take a message of the kernel. */
  apply(message) {
    if (message.version !== VERSION) {
      return "foreign";
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
    return "taken";
  }
  /** Take what a message says of the rows, whatever came before it. */
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
  /** Forget everything: the kernel is another one. */
  clear() {
    this.rows = empty();
    this._session = "";
  }
  /** The rows of a table that are of one pool, in the order in which they came. */
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
  /** Drop the old end of what only ever grows, as the kernel does. */
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
  Object.entries(attributes).forEach(
    ([key, value]) => element.setAttribute(key, value)
  );
}
function say(element, text) {
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
var SUBSHELL_PATIENCE = 3e3;
async function subshell(comm) {
  const own = comm;
  if (own.subshellStarted === void 0) {
    return;
  }
  if (own.commsOverSubshells === "disabled") {
    await Promise.resolve();
    own.commsOverSubshells = "perCommTarget";
  }
  const late = new Promise(
    (resolve) => setTimeout(resolve, SUBSHELL_PATIENCE)
  );
  await Promise.race([own.subshellStarted, late]).catch(() => void 0);
}

// src/widget/kernel.ts
var PATIENCE = 500;
var FIRST_PAUSE = 1e3;
var LONGEST_PAUSE = 6e4;
var PAGE = Math.random().toString(36).slice(2);
var KernelWay = class {
  constructor(_model, _ears) {
    this._model = _model;
    this._ears = _ears;
    _model.on("msg:custom", this._hear);
    void this._connect();
  }
  _model;
  _ears;
  /** Say that somebody looks, or does not; what the pool is like is sent to those that do. */
  look(isLooking) {
    this._isLooking = isLooking;
    this._lookedAt = Date.now();
    this._send({ kind: isLooking ? "look" : "leave", page: PAGE });
  }
  /** Have the kernel know that somebody looks: in some front ends it is reached later than the view is there. */
  tick() {
    if (!this._isHeard && Date.now() > this._lookedAt + this._pause) {
      this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
      this.look(this._isLooking);
    }
  }
  /** Have the kernel carry out a command; `doing` says what that is. */
  command(wish, doing) {
    const id = `${this._view}.${this._count++}`;
    this._ears.tell(doing, false);
    if (!this._send({ id, ...wish })) {
      this._ears.tell("There is no kernel behind this view.", true);
      return;
    }
    const late = `${doing} This waits for the cell that the kernel runs, or for you to interrupt it.`;
    this._asked.set(
      id,
      window.setTimeout(() => this._ears.tell(late, false), PATIENCE)
    );
  }
  /** Look no more, and let go of everything. */
  end() {
    this.look(false);
    this._isOver = true;
    this._model.off("msg:custom", this._hear);
    this._asked.forEach((timer) => window.clearTimeout(timer));
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
          this.look(this._isLooking);
        }
      };
      await subshell(comm);
      comm.open({ view: this._model.get("key") });
      this._comm = comm;
      if (this._isOver) {
        this.end();
      } else {
        this.look(this._isLooking);
      }
    } catch {
    }
  }
  /** Whether there is somebody to send it to: in a page without a kernel there is not. */
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
  _hear = (message) => {
    this._isHeard = true;
    if (message.kind !== "answer") {
      this._ears.changed(message);
    } else if (this._asked.has(message.id)) {
      window.clearTimeout(this._asked.get(message.id));
      if (message.state !== "heard") {
        this._ears.tell(message.text, message.state === "refused");
      }
    }
  };
  _view = Math.random().toString(36).slice(2);
  _asked = /* @__PURE__ */ new Map();
  _comm = null;
  _count = 0;
  _isHeard = false;
  _isLooking = false;
  _isOver = false;
  _lookedAt = 0;
  _pause = FIRST_PAUSE;
};

// src/widget/words.ts
var WORDS = { __: (text) => text };

// src/widget/rows.ts
var ASKED = /* @__PURE__ */ new WeakMap();
function makeState() {
  const icon = make("span", "", "", { "aria-hidden": "true" });
  return make("span", "state", [icon, make("span")]);
}
function showState(element, look) {
  element.dataset.tone = look.tone;
  say(element.firstChild, look.icon);
  say(element.lastChild, look.word);
}
function makeNode() {
  return make("li", "node", [
    make("span", "head", "", { title: "The head" }),
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
  const [head, rank, state, slots, bar, used, machine, price] = [
    ...row.children
  ];
  const part = gauge?.gpu ?? gauge?.cpu;
  const isUp = node.state === "active" || node.state === "draining";
  const isKnown = part !== null && part !== void 0;
  say(head, node.rank === 0 ? "★" : "");
  say(rank, `${node.rank}`);
  showState(state, nodeState(node, WORDS));
  say(slots, isUp ? `${node.busy}/${node.slots}` : "");
  bar.style.visibility = isUp && isKnown ? "" : "hidden";
  bar.firstChild.style.width = share(part ?? 0);
  if (isUp || node.asked_at === null) {
    ASKED.delete(row);
    say(used, isUp && isKnown ? share(part) : "");
  } else {
    ASKED.set(row, node.asked_at);
    showAge(row, Date.now() / 1e3);
  }
  used.title = isUp ? "GPU, or CPU where there is none" : "Since it was asked for";
  say(machine, node.kind);
  say(price, node.price ? `${money(node.price)}/h` : "");
  const memory = gauge?.memory ?? null;
  const kept = node.kept.length ? `keeps ${node.kept.join(", ")}` : "";
  machine.title = [node.kind, node.address, memory === null ? "" : `memory ${share(memory)}`, kept].filter(Boolean).join("\n");
}
function showAge(row, now) {
  const asked = ASKED.get(row);
  if (asked !== void 0) {
    say(row.children[5], duration(now - asked));
  }
}
function makeDecision() {
  return make("li", "decision", [make("time"), make("b"), make("span")]);
}
function showDecision(item, row) {
  const [at, change, why] = [...item.children];
  const held = row.held_back ? ` (held back: ${row.held_back})` : "";
  const times = row.times > 1 ? ` ×${row.times}` : "";
  say(at, clock(row.at));
  say(change, row.before === row.after ? "steady" : `${row.before} → ${row.after}`);
  say(why, `${row.reason}${held}${times}`);
  item.title = [
    `${row.queued} queued, ${row.inflight} running, ${row.capacity} slots`,
    `${row.active} up, ${row.booting} booting, ${row.leaving} leaving`,
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
    this._kernel = new KernelWay(model, {
      changed: (message) => {
        this._store.take(message);
        this._draw();
      },
      tell: (text, isBad) => {
        say(this._told, text);
        this._told.dataset.tone = isBad ? "bad" : "";
      }
    });
    document.addEventListener("visibilitychange", this._seen);
    window.addEventListener("pagehide", this._gone);
    this._timer = window.setInterval(() => this._tick(), 1e3);
    this._draw();
    this._seen();
  }
  /** Take it away. */
  end() {
    this._kernel.end();
    document.removeEventListener("visibilitychange", this._seen);
    window.removeEventListener("pagehide", this._gone);
    window.clearInterval(this._timer);
    this._root.remove();
  }
  get _pool() {
    return this._store.rows.pools.values().next().value;
  }
  _build() {
    this._stop.onclick = () => this._askToStop();
    this._svg.append(...this._paths);
    const counted = COUNTS.map(
      (what, i) => make("span", `count-${what}`, [this._counts[i], ` ${what}`])
    );
    const captions = LINES.map(
      (line, i) => make("span", `key-${line}`, [`${line} `, this._legend[i]])
    );
    const bounds = make("span", "bounds", ["nodes ", this._least, " to ", this._most]);
    const figure = make("figure", "chart", [this._svg, make("figcaption", "", captions)]);
    this._root.append(
      make("header", "header", [this._name, this._state, this._where, bounds, this._stop]),
      make("div", "facts", [
        make("span", "money", [this._rate, this._spent, this._left]),
        make("span", "counts", counted)
      ]),
      this._failure,
      this._question,
      make("div", "columns", [
        make("section", "", [make("h4", "", ["Nodes", this._total]), this._nodes, this._rest]),
        make("section", "", [make("h4", "", "Why it scales"), figure, this._decisions, this._still])
      ]),
      this._told
    );
    this._question.hidden = this._failure.hidden = true;
  }
  /** One of the two bounds; `given` is what it is now. */
  _bound(label, min, given) {
    const input = make("input", "number", "", { type: "number", min, "aria-label": label });
    input.onchange = () => this._scale();
    input.onkeydown = (event) => {
      if (event.key === "Enter" || event.key === "Escape") {
        if (event.key === "Escape" && this._pool) {
          input.value = String(given(this._pool));
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
    say(this._name, pool.name);
    showState(this._state, poolState(pool, WORDS));
    const elastic = pool.max > pool.min;
    const of = elastic ? `${whole(pool.min)}–${whole(pool.max)}` : whole(pool.desired);
    const policy = elastic && pool.policy ? ` · ${pool.policy}` : "";
    say(this._where, `${whole(pool.active)} of ${of} nodes · ${pool.provider}${policy}`);
    COUNTS.forEach((what, i) => say(this._counts[i], whole(pool[what])));
    this._root.dataset.failed = String(pool.failed > 0);
    say(this._failure, pool.failure);
    this._failure.hidden = !pool.failure;
    for (const [input, value] of [[this._least, pool.min], [this._most, pool.max]]) {
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
    say(this._total, whole(all.length));
    sync(
      this._nodes,
      all.slice(0, NODES),
      (node) => node.machine,
      makeNode,
      (row, node) => showNode(row, node, gauges.get(`${node.pool}/${node.machine}`))
    );
    say(this._rest, all.length ? `and ${whole(more)} more` : "No nodes; the first task gets one.");
    this._rest.hidden = all.length > 0 && more <= 0;
  }
  _drawDecisions() {
    const rows = decisionsInOrder([...this._store.rows.decisions.values()]);
    sync(this._decisions, rows.slice(0, DECISIONS), (row) => row.number, makeDecision, showDecision);
    this._still.hidden = rows.length > 0;
  }
  /** What grows with time alone. */
  _tick() {
    const pool = this._pool;
    if (!pool || document.visibilityState === "hidden") {
      return;
    }
    this._kernel.tick();
    const now = Date.now() / 1e3;
    const spent = spentBy(now, pool);
    say(this._rate, `${money(pool.per_hour)}/h`);
    say(this._spent, `${money(spent)} spent`);
    say(this._left, pool.budget === null ? "" : `${money(Math.max(0, pool.budget - spent))} left`);
    const points = [...this._store.rows.points.values()];
    const { lines, top } = chart(points, now, WIDTH, HEIGHT);
    const last = points.at(-1);
    LINES.forEach((line, i) => {
      this._paths[i].setAttribute("d", lines[line]);
      say(this._legend[i], last ? whole(last[line]) : "–");
    });
    this._svg.setAttribute("aria-label", `Tasks and nodes over time; at most ${top}`);
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
    const wish = { kind: "scale", pool: pool.name, min: least, max: most };
    this._kernel.command(wish, `Scaling to ${least} to ${most} nodes.`);
  }
  _askToStop() {
    const pool = this._pool;
    if (!pool) {
      return;
    }
    const wish = { kind: "stop-pool", pool: pool.name };
    const left = pool.running + pool.queued;
    if (left === 0) {
      this._kernel.command(wish, "Giving the machines back.");
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
      this._kernel.command(wish, "Stopping the tasks, and giving the machines back.");
    };
    this._question.onkeydown = (event) => event.key === "Escape" && close();
    const tasks = left === 1 ? "1 task" : `${whole(left)} tasks`;
    this._question.replaceChildren(`The work of ${tasks} that did not end is lost.`, yes, no);
    this._question.hidden = false;
    no.focus();
  }
  _seen = () => this._kernel.look(document.visibilityState !== "hidden");
  _gone = () => this._kernel.look(false);
  _store = new Store();
  _kernel;
  _timer;
  // Keys that are typed here are no commands of the notebook.
  _root = make("div", "root", [], { "data-lm-suppress-shortcuts": "true" });
  _name = make("b", "name");
  _state = makeState();
  _where = make("span", "where");
  _least = this._bound("Fewest nodes", "0", (pool) => pool.min);
  _most = this._bound("Most nodes", "1", (pool) => pool.max);
  _stop = make("button", "button", "Stop", {
    type: "button",
    title: "Give the machines back: pool.close()"
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
  _decisions = make("ul", "decisions", [], { "aria-label": "Decisions, the newest first" });
  _still = make("p", "empty", "Nothing was decided yet: the pool is as it was opened.");
  _told = make("p", "told", "", { role: "status", "aria-live": "polite" });
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
