import * as React from 'react';

import { Translation } from '../model/translation';
import { FailedPoolRow, PoolRow, StartupFailureRow, VolumeRow } from '../protocol';

/** Announces state changes of pools and nodes to screen readers; never numbers, which change all the time. */
export function Announcer(props: {
  pools: readonly PoolRow[];
  startup_failures: readonly StartupFailureRow[];
  failed: readonly FailedPoolRow[];
  volumes: readonly VolumeRow[];
  trans: Translation;
}): JSX.Element {
  const { trans } = props;
  const before = React.useRef<Set<string> | null>(null);
  const [announced, setAnnounced] = React.useState('');
  const states = [
    ...props.pools.map(pool => stateOf(pool, trans)),
    ...props.startup_failures.map(row =>
      row.gave_up
        ? trans.__('Node %1 of pool %2 failed and is not retried.', row.rank, row.pool)
        : trans.__('Node %1 of pool %2 failed.', row.rank, row.pool)
    ),
    ...props.failed.map(row => trans.__('Pool %1 failed to open: %2', row.name, row.reason.split('\n')[0])),
    ...new Set(props.volumes.map(row => volumeProblem(row, trans)).filter(Boolean))
  ];
  const all = states.join('\n');
  React.useEffect(() => {
    const known = before.current;
    before.current = new Set(states);
    const fresh = known ? states.filter(each => !known.has(each)) : [];
    if (fresh.length) {
      setAnnounced(fresh.join(' '));
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `all` says whether `states` has changed
  }, [all]);
  return (
    <div className="skyward-ScreenReader" role="status" aria-live="polite">
      {announced}
    </div>
  );
}

/** Return a sentence about a volume that fails, the same for all of its nodes; empty for others. */
function volumeProblem(row: VolumeRow, trans: Translation): string {
  switch (row.status) {
    case 'failed':
      return trans.__('Volume %1 of pool %2 failed.', row.mount, row.pool);
    case 'restarting':
      return trans.__('Volume %1 of pool %2 is mounted again.', row.mount, row.pool);
    default:
      return '';
  }
}

function stateOf(pool: PoolRow, trans: Translation): string {
  switch (pool.state) {
    case 'ready':
      return pool.failure
        ? trans.__('Pool %1 is failing: %2', pool.name, pool.failure)
        : trans.__('Pool %1 is ready.', pool.name);
    case 'stopping':
      return trans.__('Pool %1 is stopping.', pool.name);
    case 'closed':
      return trans.__('Pool %1 is closed.', pool.name);
    default:
      return trans.__('Pool %1 is starting.', pool.name);
  }
}
