import { NodeRow, PoolRow } from '../protocol';
import type { Words } from './panel';

/** A state as it is shown: an icon and its word, never colour alone. */
export interface Look {
  icon: string;
  word: string;
  tone: 'good' | 'busy' | 'bad' | 'quiet';
}

/** How a pool is doing. */
export function poolState(pool: PoolRow, trans: Words): Look {
  if (pool.budget_exhausted && pool.state === 'ready') {
    return { icon: '◒', word: trans.__('budget reached'), tone: 'bad' };
  }
  if (pool.failure && pool.state === 'ready') {
    return { icon: '▲', word: trans.__('trouble'), tone: 'bad' };
  }
  switch (pool.state) {
    case 'ready':
      return { icon: '●', word: trans.__('ready'), tone: 'good' };
    case 'stopping':
      return { icon: '◌', word: trans.__('stopping'), tone: 'busy' };
    case 'closed':
      return { icon: '○', word: trans.__('closed'), tone: 'quiet' };
    default:
      return { icon: '◔', word: trans.__('starting'), tone: 'busy' };
  }
}

/** What a node is at: its phase, where it boots. */
export function nodeState(node: NodeRow, trans: Words): Look {
  switch (node.state) {
    case 'active':
      if (node.busy) {
        return { icon: '●', word: trans.__('busy'), tone: 'good' };
      }
      return node.kept.length
        ? { icon: '◆', word: trans.__('keeps'), tone: 'quiet' }
        : { icon: '○', word: trans.__('idle'), tone: 'quiet' };
    case 'draining':
      return { icon: '◒', word: trans.__('draining'), tone: 'busy' };
    case 'stopping':
      return { icon: '◌', word: trans.__('stopping'), tone: 'quiet' };
    default:
      return ['queued', 'requested'].includes(node.phase)
        ? { icon: '◌', word: node.phase, tone: 'quiet' }
        : { icon: '◔', word: node.phase, tone: 'busy' };
  }
}
