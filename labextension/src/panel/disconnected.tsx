import * as React from 'react';

import { KernelLink } from '../kernel/link';
import { clock } from '../model/format';
import { Translation } from '../model/translation';

/** Notice that the pools shown are the last known state, why, and which of them outlive the kernel. */
export function LostContact(props: { link: KernelLink; trans: Translation }): JSX.Element | null {
  const { link, trans } = props;
  const why = {
    dead: trans.__('The kernel has died.'),
    restarting: trans.__('The kernel is restarting…'),
    disconnected: trans.__('The connection to the kernel was lost; reconnecting…')
  };
  if (link.lost === null) {
    return null;
  }
  const pools = [...link.store.rows.pools.values()];
  const going = pools.filter(pool => pool.lease > 0);
  const ending = link.lost === 'disconnected' ? [] : pools.filter(pool => pool.lease === 0 && pool.active > 0);
  return (
    <div className="skyward-Notice skyward-mod-error skyward-Disconnected" role="status">
      <div>
        <p>
          {why[link.lost]} {trans.__('This is the last known state, at %1.', clock(link.lostAt))}
        </p>
        {going.map(pool => (
          <p key={pool.name}>
            {trans.__(
              'The nodes of %1 finish their tasks without it, and terminate at %2 unless you reattach the pool.',
              pool.name,
              clock(link.lostAt + pool.lease)
            )}
          </p>
        ))}
        {ending.map(pool => (
          <p key={pool.name}>{trans.__('The nodes of %1 terminate with it.', pool.name)}</p>
        ))}
      </div>
    </div>
  );
}
