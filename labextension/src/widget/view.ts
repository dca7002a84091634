import { chart, LINES } from '../model/chart';
import { bounds, run } from '../model/equivalent';
import { money, spentBy, whole } from '../model/format';
import { decisionsInOrder, nodesInOrder } from '../model/lists';
import { poolState } from '../model/states';
import { Store, StoreUpdate } from '../model/store';
import { PoolRow } from '../protocol';
import { make, makeSvg, setText, sync } from './elements';
import { KernelConnection, Model } from './kernel';
import { makeDecision, makeNode, makeState, showAge, showDecision, showNode, showState } from './rows';
import { UNTRANSLATED } from './translation';

const WIDTH = 300;
const HEIGHT = 56;
/** Maximum number of rows that are drawn; further nodes are counted. */
const NODES = 60;
const DECISIONS = 30;
const COUNTS = ['running', 'queued', 'done', 'failed'] as const;

/** One display of a pool. All text is set as text content, never as HTML. */
export class PoolView {
  constructor(model: Model, el: HTMLElement) {
    const tables = model.get('first') as StoreUpdate['tables'];
    this._store.take({ kind: 'snapshot', tables });
    this._build();
    el.append(this._root);
    this._kernel = new KernelConnection(model, {
      changed: message => {
        this._store.take(message);
        this._draw();
      },
      notify: (text, isBad) => {
        setText(this._message, text);
        this._message.dataset.tone = isBad ? 'bad' : '';
      }
    });
    document.addEventListener('visibilitychange', this._onVisibility);
    window.addEventListener('pagehide', this._onHide);
    this._timer = window.setInterval(() => this._tick(), 1000);
    this._draw();
    this._onVisibility();
  }

  /** Remove the view. */
  end(): void {
    this._kernel.end();
    document.removeEventListener('visibilitychange', this._onVisibility);
    window.removeEventListener('pagehide', this._onHide);
    window.clearInterval(this._timer);
    this._root.remove();
  }

  private get _pool(): PoolRow | undefined {
    return this._store.rows.pools.values().next().value;
  }

  private _build(): void {
    this._stop.onclick = () => this._askToStop();
    this._svg.append(...this._paths);
    const counted = COUNTS.map((what, i) => make('span', `count-${what}`, [this._counts[i], ` ${what}`]));
    const captions = LINES.map((line, i) => make('span', `key-${line}`, [`${line} `, this._legend[i]]));
    const bounds = make('span', 'bounds', ['nodes ', this._least, ' to ', this._most]);
    const figure = make('figure', 'chart', [this._svg, make('figcaption', '', captions)]);
    this._root.append(
      make('header', 'header', [this._name, this._state, this._where, bounds, this._stop]),
      make('div', 'facts', [
        make('span', 'money', [this._rate, this._spent, this._left]),
        make('span', 'counts', counted)
      ]),
      this._failure,
      this._question,
      make('div', 'columns', [
        make('section', '', [make('h4', '', ['Nodes', this._total]), this._nodes, this._rest]),
        make('section', '', [make('h4', '', 'Scaling'), figure, this._decisions, this._noDecisions])
      ]),
      this._message
    );
    this._question.hidden = this._failure.hidden = true;
  }

  /** Create the input of one of the two bounds; `current` returns its value. */
  private _bound(label: string, min: string, current: (pool: PoolRow) => number): HTMLInputElement {
    const input = make('input', 'number', '', { type: 'number', min, 'aria-label': label });
    input.onchange = () => this._scale();
    input.onkeydown = event => {
      if (event.key === 'Enter' || event.key === 'Escape') {
        if (event.key === 'Escape' && this._pool) {
          input.value = String(current(this._pool));
        }
        input.blur(); // triggers the change event; the notebook must not handle Enter
        event.preventDefault();
      }
    };
    return input;
  }

  private _draw(): void {
    const pool = this._pool;
    if (!pool) {
      return;
    }
    setText(this._name, pool.name);
    showState(this._state, poolState(pool, UNTRANSLATED));
    const elastic = pool.max > pool.min;
    const of = elastic ? `${whole(pool.min)}–${whole(pool.max)}` : whole(pool.desired);
    const policy = elastic && pool.policy ? ` · ${pool.policy}` : '';
    setText(this._where, `${whole(pool.active)} of ${of} nodes · ${pool.provider}${policy}`);
    COUNTS.forEach((what, i) => setText(this._counts[i], whole(pool[what])));
    this._root.dataset.failed = String(pool.failed > 0);
    setText(this._failure, pool.failure);
    this._failure.hidden = !pool.failure;
    for (const [input, value] of [
      [this._least, pool.min],
      [this._most, pool.max]
    ] as const) {
      if ((input.getRootNode() as Document | ShadowRoot).activeElement !== input) {
        input.value = String(value);
      }
      input.disabled = pool.state !== 'ready';
      input.title = `pool.resize((${pool.min}, ${pool.max}))`;
    }
    this._stop.disabled = pool.state === 'stopping' || pool.state === 'closed';
    this._drawNodes();
    this._drawDecisions();
    this._tick();
  }

  private _drawNodes(): void {
    const { nodes, gauges } = this._store.rows;
    const all = nodesInOrder([...nodes.values()]);
    const more = all.length - NODES;
    setText(this._total, whole(all.length));
    sync(
      this._nodes,
      all.slice(0, NODES),
      node => node.machine,
      makeNode,
      (row, node) => showNode(row, node, gauges.get(`${node.pool}/${node.machine}`))
    );
    setText(this._rest, all.length ? `and ${whole(more)} more` : 'No nodes; the first task starts one.');
    this._rest.hidden = all.length > 0 && more <= 0;
  }

  private _drawDecisions(): void {
    const rows = decisionsInOrder([...this._store.rows.decisions.values()]);
    sync(this._decisions, rows.slice(0, DECISIONS), row => row.number, makeDecision, showDecision);
    this._noDecisions.hidden = rows.length > 0;
  }

  /** Draw the values that grow with time. */
  private _tick(): void {
    const pool = this._pool;
    if (!pool || document.visibilityState === 'hidden') {
      return;
    }
    this._kernel.tick();
    const now = Date.now() / 1000;
    const spent = spentBy(now, pool);
    setText(this._rate, `${money(pool.per_hour)}/h`);
    setText(this._spent, `${money(spent)} spent`);
    setText(this._left, pool.budget === null ? '' : `${money(Math.max(0, pool.budget - spent))} left`);
    const points = [...this._store.rows.points.values()];
    const { lines, top } = chart(points, now, WIDTH, HEIGHT);
    const last = points.at(-1);
    LINES.forEach((line, i) => {
      this._paths[i].setAttribute('d', lines[line]);
      setText(this._legend[i], last ? whole(last[line]) : '–');
    });
    this._svg.setAttribute('aria-label', `Tasks and nodes over time; maximum ${top}`);
    for (const row of this._nodes.children) {
      showAge(row as HTMLElement, now);
    }
  }

  private _scale(): void {
    const pool = this._pool;
    const [min, max] = [this._least, this._most].map(input => Math.max(0, Math.round(input.valueAsNumber)));
    if (!pool || Number.isNaN(min + max) || (min === pool.min && max === pool.max)) {
      this._draw();
      return;
    }
    const changedMin = min !== pool.min;
    const least = changedMin ? min : Math.min(min, max);
    const most = Math.max(1, changedMin ? Math.max(min, max) : max);
    const request = run('scale', { pool: pool.name, nodes: bounds(least, most) });
    this._kernel.command(request, `Scaling to ${least} to ${most} nodes.`);
  }

  private _askToStop(): void {
    const pool = this._pool;
    if (!pool) {
      return;
    }
    const request = run('down', { pool: pool.name });
    const left = pool.running + pool.queued;
    if (left === 0) {
      this._kernel.command(request, 'Terminating the machines.');
      return;
    }
    const yes = make('button', 'button', 'Stop', { type: 'button' });
    const no = make('button', 'button', 'Keep', { type: 'button' });
    const close = () => {
      this._question.hidden = true;
    };
    no.onclick = close;
    yes.onclick = () => {
      close();
      this._kernel.command(request, 'Cancelling the tasks and terminating the machines.');
    };
    this._question.onkeydown = event => event.key === 'Escape' && close();
    const tasks = left === 1 ? '1 unfinished task' : `${whole(left)} unfinished tasks`;
    this._question.replaceChildren(`${tasks} will be lost.`, yes, no);
    this._question.hidden = false;
    no.focus();
  }

  private readonly _onVisibility = () => this._kernel.setVisible(document.visibilityState !== 'hidden');
  private readonly _onHide = () => this._kernel.setVisible(false);

  private readonly _store = new Store();
  private readonly _kernel: KernelConnection;
  private readonly _timer: number;

  // Keys that are typed here must not trigger shortcuts of the notebook.
  private readonly _root = make('div', 'root', [], { 'data-lm-suppress-shortcuts': 'true' });
  private readonly _name = make('b', 'name');
  private readonly _state = makeState();
  private readonly _where = make('span', 'where');
  private readonly _least = this._bound('Minimum nodes', '0', pool => pool.min);
  private readonly _most = this._bound('Maximum nodes', '1', pool => pool.max);
  private readonly _stop = make('button', 'button', 'Stop', {
    type: 'button',
    title: 'Terminate the machines: pool.close()'
  });
  private readonly _rate = make('span');
  private readonly _spent = make('span');
  private readonly _left = make('span');
  private readonly _counts = COUNTS.map(() => make('b', '', '0'));
  private readonly _failure = make('p', 'failure');
  private readonly _question = make('p', 'question');
  private readonly _total = make('span', 'total');
  private readonly _nodes = make('ul', 'nodes', [], { 'aria-label': 'Nodes' });
  private readonly _rest = make('p', 'empty');
  private readonly _paths = LINES.map(line => makeSvg('path', { class: `skyward-view-line-${line}` }));
  private readonly _svg = makeSvg('svg', {
    viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`,
    preserveAspectRatio: 'none',
    role: 'img'
  });
  private readonly _legend = LINES.map(() => make('b', '', '–'));
  private readonly _decisions = make('ul', 'decisions', [], { 'aria-label': 'Scaling decisions, the newest first' });
  private readonly _noDecisions = make('p', 'empty', 'No scaling decisions yet.');
  private readonly _message = make('p', 'told', '', { role: 'status', 'aria-live': 'polite' });
}
