import * as React from 'react';

import { money, spentBy, whole } from '../model/format';
import { poolState } from '../model/states';
import { Translation } from '../model/translation';
import { PoolRow } from '../protocol';
import { useNow } from './hooks';
import { State } from './state';

/** Return the first line of a failure message, as a sentence. */
function firstLine(failure: string): string {
  return `${failure.split('\n')[0].replace(/[:.]$/, '')}.`;
}

function Name(props: { pool: PoolRow; selected: boolean; onSelect?: () => void; trans: Translation }): JSX.Element {
  const { pool, onSelect } = props;
  if (!onSelect) {
    return <b className="skyward-Pool-name">{pool.name}</b>;
  }
  return (
    <button
      type="button"
      className="skyward-Pool-name"
      aria-pressed={props.selected}
      title={props.trans.__('Show pool %1', pool.name)}
      onClick={onSelect}
    >
      {pool.name}
    </button>
  );
}

/** Card of one pool: its state, its nodes and its cost. `actions` follow its state, `children` its cost. */
export function PoolCard(props: {
  pool: PoolRow;
  trans: Translation;
  selected?: boolean;
  onSelect?: () => void;
  actions?: React.ReactNode;
  children?: React.ReactNode;
}): JSX.Element {
  const { pool, trans, selected = false } = props;
  const now = useNow(pool.per_hour > 0);
  const spent = spentBy(now, pool);
  const left = pool.budget === null ? null : Math.max(0, pool.budget - spent);
  const elastic = pool.max > pool.min;
  return (
    <article className={`skyward-Pool${selected ? ' skyward-mod-selected' : ''}`} data-pool={pool.name}>
      <header>
        <Name pool={pool} selected={selected} onSelect={props.onSelect} trans={trans} />
        <State {...poolState(pool, trans)} />
        {props.actions}
      </header>
      <p className="skyward-Pool-line">
        {elastic
          ? trans.__('%1 of %2–%3 nodes', whole(pool.active), whole(pool.min), whole(pool.max))
          : pool.desired === 1
            ? trans.__('%1 of 1 node', whole(pool.active))
            : trans.__('%1 of %2 nodes', whole(pool.active), whole(pool.desired))}
        {pool.accelerators && ` · ${pool.accelerators}`}
        {' · '}
        {pool.provider || trans.__('no provider yet')}
        {pool.policy && elastic && ` · ${pool.policy}`}
      </p>
      <p className="skyward-Pool-money">
        <span>{money(pool.per_hour)}/h</span>
        <span>{trans.__('%1 spent', money(spent))}</span>
        {left !== null && <span>{trans.__('%1 left', money(left))}</span>}
      </p>
      {pool.failure && (
        <p className="skyward-Pool-failure">
          {trans.__('It %1', firstLine(pool.failure))}
          {pool.budget_exhausted && ` ${trans.__('Its nodes finish their tasks, then terminate.')}`}
        </p>
      )}
      {props.children}
    </article>
  );
}
