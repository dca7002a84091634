import * as React from 'react';

import { Words } from '../model/panel';
import { PoolRow, StartupFailureRow } from '../protocol';

/** Says to those who listen to the panel what has become of pools and nodes; never figures, which change all the time. */
export function Announcer(props: {
  pools: readonly PoolRow[];
  troubles: readonly StartupFailureRow[];
  trans: Words;
}): JSX.Element {
  const { trans } = props;
  const before = React.useRef<Set<string> | null>(null);
  const [said, setSaid] = React.useState('');
  const states = [
    ...props.pools.map(pool => stateOf(pool, trans)),
    ...props.troubles.map(row =>
      row.gave_up
        ? trans.__('Node %1 of pool %2 was given up.', row.rank, row.pool)
        : trans.__('Node %1 of pool %2 failed.', row.rank, row.pool)
    )
  ];
  const all = states.join('\n');
  React.useEffect(() => {
    const known = before.current;
    before.current = new Set(states);
    const fresh = known ? states.filter(each => !known.has(each)) : [];
    if (fresh.length) {
      setSaid(fresh.join(' '));
    }
  }, [all]);
  return (
    <div className="skyward-Unseen" role="status" aria-live="polite">
      {said}
    </div>
  );
}

function stateOf(pool: PoolRow, trans: Words): string {
  switch (pool.state) {
    case 'ready':
      return pool.failure
        ? trans.__('Pool %1 is in trouble: %2', pool.name, pool.failure)
        : trans.__('Pool %1 is ready.', pool.name);
    case 'stopping':
      return trans.__('Pool %1 is stopping.', pool.name);
    case 'closed':
      return trans.__('Pool %1 is closed.', pool.name);
    default:
      return trans.__('Pool %1 is starting.', pool.name);
  }
}
