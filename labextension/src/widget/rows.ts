import { clock, duration, money, share } from '../model/format';
import { Look, nodeState } from '../model/states';
import { DecisionRow, GaugeRow, NodeRow } from '../protocol';
import { make, say } from './elements';
import { WORDS } from './words';

/** When the machine of a row that boots or leaves was asked for: its age grows by itself. */
const ASKED = new WeakMap<HTMLElement, number>();

/** A state, yet to be filled. */
export function makeState(): HTMLElement {
  const icon = make('span', '', '', { 'aria-hidden': 'true' });
  return make('span', 'state', [icon, make('span')]);
}

/** Fill it. */
export function showState(element: HTMLElement, look: Look): void {
  element.dataset.tone = look.tone;
  say(element.firstChild!, look.icon);
  say(element.lastChild!, look.word);
}

/** The row of a node, yet to be filled. */
export function makeNode(): HTMLElement {
  return make('li', 'node', [
    make('span', 'head', '', { title: 'The head' }),
    make('span', 'rank'),
    makeState(),
    make('span', 'slots'),
    make('span', 'bar', make('span'), { 'aria-hidden': 'true' }),
    make('span', 'used'),
    make('span', 'machine'),
    make('span', 'price')
  ]);
}

/** Fill it. */
export function showNode(row: HTMLElement, node: NodeRow, gauge?: GaugeRow): void {
  const [head, rank, state, slots, bar, used, machine, price] = [
    ...row.children
  ] as HTMLElement[];
  const part = gauge?.gpu ?? gauge?.cpu;
  const isUp = node.state === 'active' || node.state === 'draining';
  const isKnown = part !== null && part !== undefined;
  say(head, node.rank === 0 ? '★' : '');
  say(rank, `${node.rank}`);
  showState(state, nodeState(node, WORDS));
  say(slots, isUp ? `${node.busy}/${node.slots}` : '');
  bar.style.visibility = isUp && isKnown ? '' : 'hidden';
  (bar.firstChild as HTMLElement).style.width = share(part ?? 0);
  if (isUp || node.asked_at === null) {
    ASKED.delete(row);
    say(used, isUp && isKnown ? share(part) : '');
  } else {
    ASKED.set(row, node.asked_at);
    showAge(row, Date.now() / 1000);
  }
  used.title = isUp ? 'GPU, or CPU where there is none' : 'Since it was asked for';
  say(machine, node.kind);
  say(price, node.price ? `${money(node.price)}/h` : '');
  const memory = gauge?.memory ?? null;
  const kept = node.kept.length ? `keeps ${node.kept.join(', ')}` : '';
  machine.title = [node.kind, node.address, memory === null ? '' : `memory ${share(memory)}`, kept]
    .filter(Boolean)
    .join('\n');
}

/** Say how old the machine of a row is, where that is of interest. */
export function showAge(row: HTMLElement, now: number): void {
  const asked = ASKED.get(row);
  if (asked !== undefined) {
    say(row.children[5], duration(now - asked));
  }
}

/** The row of a decision, yet to be filled. */
export function makeDecision(): HTMLElement {
  return make('li', 'decision', [make('time'), make('b'), make('span')]);
}

/** Fill it. */
export function showDecision(item: HTMLElement, row: DecisionRow): void {
  const [at, change, why] = [...item.children];
  const held = row.held_back ? ` (held back: ${row.held_back})` : '';
  const times = row.times > 1 ? ` ×${row.times}` : '';
  say(at, clock(row.at));
  say(change, row.before === row.after ? 'steady' : `${row.before} → ${row.after}`);
  say(why, `${row.reason}${held}${times}`);
  item.title = [
    `${row.queued} queued, ${row.inflight} running, ${row.capacity} slots`,
    `${row.active} up, ${row.booting} booting, ${row.leaving} leaving`,
    `by ${row.by === 'policy' ? row.policy : row.by}`
  ].join(' · ');
}
