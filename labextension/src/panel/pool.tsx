import { stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Bounds } from '../components/bounds';
import { IconButton, LinkButton } from '../components/button';
import { PoolCard } from '../components/pool';
import { bounds, equivalent, run } from '../model/equivalent';
import { PoolRow } from '../protocol';
import { IPoolActions } from '../tokens';
import { Icon } from './icons';
import { PartProps } from './props';

/** The card of a pool, with the controls that the panel adds. */
export function Pool(
  props: PartProps & { pool: PoolRow; selected: boolean; actions: IPoolActions; onSelect: () => void }
): JSX.Element {
  const { pool, trans } = props;
  const scale = (min: number, max: number) => run('scale', { pool: pool.name, nodes: bounds(min, max) });
  return (
    <PoolCard
      pool={pool}
      selected={props.selected}
      onSelect={props.onSelect}
      trans={trans}
      actions={
        <IconButton
          icon={<Icon icon={stopIcon} />}
          title={trans.__('Stop pool %1', pool.name)}
          equivalent={equivalent(run('down', { pool: pool.name }))}
          disabled={pool.state === 'stopping'}
          onClick={() => props.actions.stopPool(pool)}
        />
      }
    >
      {pool.recovered > 0 && (
        <p className="skyward-Pool-line">
          {pool.recovered === 1
            ? trans.__('1 task of the previous kernel')
            : trans.__('%1 tasks of the previous kernel', pool.recovered)}{' '}
          <LinkButton onClick={() => props.actions.insertRecovered(pool)}>
            {trans.__('Insert a cell that shows them')}
          </LinkButton>
        </p>
      )}
      {props.selected && (
        <Bounds
          pool={pool}
          onScale={(min, max) => props.send(scale(min, max))}
          equivalent={(min, max) => equivalent(scale(min, max))}
          trans={trans}
        />
      )}
    </PoolCard>
  );
}
