import * as React from 'react';

import { clock } from '../model/format';
import { KernelLink } from '../model/link';
import { Words } from '../model/panel';

/** That what is shown is what the kernel told last, why, and what of it goes on without the kernel, until when. */
export function LostContact(props: { link: KernelLink; trans: Words }): JSX.Element | null {
  const { link, trans } = props;
  const why = {
    gone: trans.__('The kernel is gone.'),
    restarting: trans.__('The kernel restarts…'),
    cut: trans.__('The connection to the kernel is lost; it is tried again.')
  };
  if (link.lost === null) {
    return null;
  }
  const pools = [...link.store.rows.pools.values()];
  const going = pools.filter(pool => pool.lease > 0);
  const ending = link.lost === 'cut' ? [] : pools.filter(pool => pool.lease === 0 && pool.active > 0);
  return (
    <div className="skyward-Notice skyward-mod-error skyward-Lost" role="status">
      <div>
        <p>
          {why[link.lost]} {trans.__('This is what it told last, at %1.', clock(link.lostAt))}
        </p>
        {going.map(pool => (
          <p key={pool.name}>
            {trans.__(
              'The nodes of %1 finish their tasks without it, and end at %2 if nobody takes the pool over.',
              pool.name,
              clock(link.lostAt + pool.lease)
            )}
          </p>
        ))}
        {ending.map(pool => (
          <p key={pool.name}>{trans.__('The nodes of %1 end with it.', pool.name)}</p>
        ))}
      </div>
    </div>
  );
}
