import { NodeRow, PoolRow } from '../protocol';
import type { Translation } from './translation';

/** Label of a state: an icon and a word, never colour alone. */
export interface StateLabel {
  icon: string;
  word: string;
  tone: 'good' | 'busy' | 'bad' | 'quiet';
}

/** Return the label of a pool's state. */
export function poolState(pool: PoolRow, trans: Translation): StateLabel {
  if (pool.budget_exhausted && pool.state === 'ready') {
    return { icon: '◒', word: trans.__('budget reached'), tone: 'bad' };
  }
  if (pool.failure && pool.state === 'ready') {
    return { icon: '▲', word: trans.__('failing'), tone: 'bad' };
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

/** Return the label of a node's state; while it boots, of its phase. */
export function nodeState(node: NodeRow, trans: Translation): StateLabel {
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
