import { clock, duration, money, share } from '../model/format';
import { nodeState } from '../model/states';
import { DecisionRow, GaugeRow, Label, NodeRow } from '../protocol';
import { make, setText } from './elements';
import { UNTRANSLATED } from './translation';

/** Unix times at which the machines of booting and stopping rows were requested, from which their age is drawn. */
const REQUESTED_AT = new WeakMap<HTMLElement, number>();

/** Create the element of a state. */
export function makeState(): HTMLElement {
  const icon = make('span', '', '', { 'aria-hidden': 'true' });
  return make('span', 'state', [icon, make('span')]);
}

/** Show a state in its element. */
export function showState(element: HTMLElement, label: Label): void {
  element.dataset.tone = label.tone;
  setText(element.firstChild!, label.icon);
  setText(element.lastChild!, label.word);
}

/** Create the row of a node. */
export function makeNode(): HTMLElement {
  return make('li', 'node', [
    make('span', 'head', '', { title: 'Head node' }),
    make('span', 'rank'),
    makeState(),
    make('span', 'slots'),
    make('span', 'bar', make('span'), { 'aria-hidden': 'true' }),
    make('span', 'used'),
    make('span', 'machine'),
    make('span', 'price')
  ]);
}

/** Show a node in its row. */
export function showNode(row: HTMLElement, node: NodeRow, gauge?: GaugeRow): void {
  const [head, rank, state, slots, bar, used, machine, price] = [...row.children] as HTMLElement[];
  const part = gauge?.gpu ?? gauge?.cpu;
  const isUp = node.state === 'active' || node.state === 'draining';
  const isKnown = part !== null && part !== undefined;
  setText(head, node.rank === 0 ? '★' : '');
  setText(rank, `${node.rank}`);
  showState(state, nodeState(node, UNTRANSLATED));
  setText(slots, isUp ? `${node.busy}/${node.slots}` : '');
  bar.style.visibility = isUp && isKnown ? '' : 'hidden';
  (bar.firstChild as HTMLElement).style.width = share(part ?? 0);
  if (isUp || node.asked_at === null) {
    REQUESTED_AT.delete(row);
    setText(used, isUp && isKnown ? share(part) : '');
  } else {
    REQUESTED_AT.set(row, node.asked_at);
    showAge(row, Date.now() / 1000);
  }
  used.title = isUp ? 'GPU, or CPU where there is none' : 'Since the machine was requested';
  setText(machine, node.kind);
  setText(price, node.price ? `${money(node.price)}/h` : '');
  const memory = gauge?.memory ?? null;
  const kept = node.kept.length ? `keeps ${node.kept.join(', ')}` : '';
  machine.title = [node.kind, node.address, memory === null ? '' : `memory ${share(memory)}`, kept]
    .filter(Boolean)
    .join('\n');
}

/** Show the age of the machine of a booting or stopping row. */
export function showAge(row: HTMLElement, now: number): void {
  const asked = REQUESTED_AT.get(row);
  if (asked !== undefined) {
    setText(row.children[5], duration(now - asked));
  }
}

/** Create the row of a decision. */
export function makeDecision(): HTMLElement {
  return make('li', 'decision', [make('time'), make('b'), make('span')]);
}

/** Show a decision in its row. */
export function showDecision(item: HTMLElement, row: DecisionRow): void {
  const [at, change, why] = [...item.children];
  const held = row.held_back ? ` (held back: ${row.held_back})` : '';
  const times = row.times > 1 ? ` ×${row.times}` : '';
  setText(at, clock(row.at));
  setText(change, row.before === row.after ? 'steady' : `${row.before} → ${row.after}`);
  setText(why, `${row.reason}${held}${times}`);
  item.title = [
    `${row.queued} queued, ${row.inflight} running, ${row.capacity} slots`,
    `${row.active} active, ${row.booting} booting, ${row.leaving} stopping`,
    `by ${row.by === 'policy' ? row.policy : row.by}`
  ].join(' · ');
}
