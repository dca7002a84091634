import {
  Label,
  NODE_STATUSES,
  NodeRow,
  PHASE_WORDS,
  POOL_STATUSES,
  PoolRow,
  TASK_STATUSES,
  TaskRow
} from '../protocol';
import type { Translation } from './translation';

/** Return the label of a pool's status. */
export function poolState(pool: PoolRow, trans: Translation): Label {
  return translatedLabel(POOL_STATUSES[pool.status], trans);
}

/** Return the label of a node: its status or, while it starts, its phase; and whether it is outdated. */
export function nodeState(node: NodeRow, trans: Translation): Label {
  const status = NODE_STATUSES[node.status];
  const label =
    node.status === 'starting'
      ? { ...status, word: trans.__(PHASE_WORDS[node.phase] ?? node.phase) }
      : translatedLabel(status, trans);
  return node.outdated ? { ...label, word: trans.__('%1, outdated', label.word) } : label;
}

/** Return the label of a task's state; while it runs, of its node. */
export function taskState(task: TaskRow, trans: Translation): Label {
  const label = TASK_STATUSES[task.state];
  return task.state === 'running'
    ? { ...label, word: trans.__('node %1', task.node ?? '') }
    : translatedLabel(label, trans);
}

/** Return a label with its word in the user's language. */
export function translatedLabel(label: Label, trans: Translation): Label {
  return { ...label, word: trans.__(label.word) };
}
