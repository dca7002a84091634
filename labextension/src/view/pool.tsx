import { stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { bounds, equivalent, Wish } from '../model/equivalent';
import { money, spentBy, whole } from '../model/format';
import { Words } from '../model/panel';
import { poolState } from '../model/states';
import { PoolRow } from '../protocol';
import { SignButton, State, useNow } from './parts';

/** What the parts of the panel ask of what is around them. */
export interface Acting {
  trans: Words;
  send: (wish: Wish) => Promise<boolean>;
}

/** The first line of why something failed, as a sentence. */
function firstLine(failure: string): string {
  return `${failure.split('\n')[0].replace(/[:.]$/, '')}.`;
}

/** One pool: what it is, what it costs, and its bounds. */
export function PoolCard(
  props: Acting & {
    pool: PoolRow;
    selected: boolean;
    onSelect: () => void;
    onStop: () => void;
    onRecovered: () => void;
  }
): JSX.Element {
  const { pool, trans } = props;
  const now = useNow(pool.per_hour > 0);
  const spent = spentBy(now, pool);
  const left = pool.budget === null ? null : Math.max(0, pool.budget - spent);
  const elastic = pool.max > pool.min;
  return (
    <article
      className={`skyward-Pool${props.selected ? ' skyward-mod-selected' : ''}`}
      data-pool={pool.name}
    >
      <header>
        <button
          className="skyward-Pool-name"
          aria-pressed={props.selected}
          title={trans.__('Show pool %1', pool.name)}
          onClick={props.onSelect}
        >
          {pool.name}
        </button>
        <State {...poolState(pool, trans)} />
        <SignButton
          icon={stopIcon}
          title={trans.__('Stop pool %1', pool.name)}
          same={equivalent({ kind: 'stop-pool', pool: pool.name })}
          disabled={pool.state === 'stopping'}
          onClick={props.onStop}
        />
      </header>
      <p className="skyward-Pool-line">
        {elastic
          ? trans.__('%1 of %2–%3 nodes', whole(pool.active), whole(pool.min), whole(pool.max))
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
          {pool.budget_exhausted && ` ${trans.__('Its nodes finish their tasks and go.')}`}
        </p>
      )}
      {pool.recovered > 0 && (
        <p className="skyward-Pool-line">
          {pool.recovered === 1
            ? trans.__('1 task of the former kernel')
            : trans.__('%1 tasks of the former kernel', pool.recovered)}{' '}
          <button className="skyward-Link" onClick={props.onRecovered}>
            {trans.__('Insert a cell that shows them')}
          </button>
        </p>
      )}
      {props.selected && <Bounds {...props} />}
    </article>
  );
}

/** The bounds of a pool: a slider with two thumbs, and their numbers to edit. Sent when a thumb is let go. */
function Bounds(props: Acting & { pool: PoolRow }): JSX.Element {
  const { pool, trans } = props;
  const [draft, setDraft] = React.useState<[number, number] | null>(null);
  React.useEffect(() => setDraft(null), [pool.min, pool.max, pool.name]);
  const [min, max] = draft ?? [pool.min, pool.max];
  const end = Math.max(8, pool.max * 2, max);
  const same = equivalent({ kind: 'scale', pool: pool.name, min, max });
  const change = (which: 0 | 1, value: number) => {
    const wanted = Math.max(0, Math.round(value) || 0);
    setDraft(
      which === 0
        ? [wanted, Math.max(wanted, max, 1)]
        : [Math.min(wanted, min), Math.max(1, wanted)]
    );
  };
  const commit = async () => {
    if (draft && bounds(...draft) !== bounds(pool.min, pool.max)) {
      const wish = { min: draft[0], max: draft[1] };
      await props.send({ kind: 'scale', pool: pool.name, ...wish });
    }
    setDraft(null);
  };
  const number = (which: 0 | 1, label: string) => (
    <input
      type="number"
      className="skyward-Bounds-number"
      style={{ width: `${String(which === 0 ? min : max).length + 2.5}ch` }}
      aria-label={label}
      title={same}
      min={which}
      value={which === 0 ? min : max}
      onChange={event => change(which, event.currentTarget.valueAsNumber)}
      onBlur={() => void commit()}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          void commit();
        } else if (event.key === 'Escape') {
          setDraft(null);
        }
      }}
    />
  );
  const thumb = (which: 0 | 1, label: string) => (
    <input
      type="range"
      className="skyward-Bounds-thumb"
      aria-label={label}
      title={same}
      min={0}
      max={end}
      value={which === 0 ? min : max}
      onChange={event => change(which, event.currentTarget.valueAsNumber)}
      onPointerUp={() => void commit()}
      onKeyUp={event => event.key.startsWith('Arrow') && void commit()}
    />
  );
  const share = (value: number) => `${(value / end) * 100}%`;
  return (
    <div className="skyward-Bounds">
      <label>{trans.__('min')}</label>
      {number(0, trans.__('Fewest nodes of pool %1', pool.name))}
      <div className="skyward-Bounds-slider">
        <div className="skyward-Bounds-track">
          <div
            style={{ left: share(min), right: `calc(100% - ${share(max)})` }}
          />
        </div>
        {thumb(0, trans.__('Fewest nodes'))}
        {thumb(1, trans.__('Most nodes'))}
      </div>
      {number(1, trans.__('Most nodes of pool %1', pool.name))}
      <label>{trans.__('max')}</label>
    </div>
  );
}

/** The counts of a pool's tasks in words. */
export function taskCounts(pool: PoolRow, trans: Words): string {
  return [
    trans.__('%1 run', whole(pool.running)),
    trans.__('%1 wait', whole(pool.queued)),
    ...(pool.failed ? [trans.__('%1 ✗', whole(pool.failed))] : [])
  ].join(' · ');
}
