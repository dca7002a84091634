import { DecisionRow, NodeRow, OutputRow, TaskRow } from '../protocol';

const ORDER: { [state in TaskRow['state']]: number } = {
  running: 0,
  queued: 1,
  failed: 2,
  cancelled: 2,
  done: 2
};

/** Sort tasks for display: running, queued, then finished ones, the latest first. */
export function tasksInOrder(tasks: readonly TaskRow[]): TaskRow[] {
  return [...tasks].sort(
    (a, b) => ORDER[a.state] - ORDER[b.state] || (ORDER[a.state] === 2 ? b.number - a.number : a.number - b.number)
  );
}

/** Count tasks by state. */
export function tally(tasks: readonly TaskRow[]): Map<TaskRow['state'], number> {
  const counts = new Map<TaskRow['state'], number>();
  tasks.forEach(task => counts.set(task.state, (counts.get(task.state) ?? 0) + 1));
  return counts;
}

/** Filter nodes by words and sort them for display: by rank, stopping nodes last. */
export function nodesInOrder(nodes: readonly NodeRow[], filter = ''): NodeRow[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return nodes
    .filter(node => {
      const age = node.outdated ? 'outdated' : '';
      const text =
        `${node.rank} ${node.state} ${node.status} ${node.phase} ${node.group} ${node.kind} ${node.kept.join(' ')} ${age}`.toLowerCase();
      return words.every(word => text.includes(word));
    })
    .sort(
      (a, b) =>
        Number(a.state === 'stopping') - Number(b.state === 'stopping') || a.rank - b.rank || a.machine - b.machine
    );
}

/** Return whether a node can be drained; the head, node 0, stays as long as the pool has nodes. */
export function isDrainable(node: NodeRow): boolean {
  return node.state === 'active' && node.rank > 0;
}

/** Sort decisions, the newest first. */
export function decisionsInOrder(rows: readonly DecisionRow[]): DecisionRow[] {
  return [...rows].sort((a, b) => b.number - a.number);
}

/** One line of the output of nodes. */
export interface OutputLine {
  key: string;
  from: string;
  text: string;
  stream: OutputRow['stream'];
}

/** Return the last `most` lines of output. A line that was overwritten with `\r` has its last state. */
export function outputLines(rows: readonly OutputRow[], most = 200): OutputLine[] {
  const lines: OutputLine[] = [];
  const incomplete = new Map<string, OutputLine>();
  for (const row of rows) {
    const from = row.task ? `${row.node}·${row.task}` : `${row.node}`;
    const source = `${from} ${row.stream}`;
    row.text.split('\n').forEach((part, index, parts) => {
      const last = index === parts.length - 1;
      const open = index === 0 ? incomplete.get(source) : undefined;
      if (open) {
        open.text = lastState(open.text + part);
      } else if (part || !last) {
        const line: OutputLine = {
          key: `${row.number}.${index}`,
          from,
          text: lastState(part),
          stream: row.stream
        };
        lines.push(line);
        if (last) {
          incomplete.set(source, line);
        }
      }
      if (!last) {
        incomplete.delete(source);
      }
    });
  }
  return lines.slice(-most);
}

function lastState(text: string): string {
  const states = text.split('\r');
  return states[states.length - 1] || states[states.length - 2] || '';
}
