import { stopIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { bounds, equivalent, run, RunRequest } from '../model/equivalent';
import { money, spentBy, whole } from '../model/format';
import { Translation } from '../model/panel';
import { poolState } from '../model/states';
import { PoolRow } from '../protocol';
import { IconButton, State, useNow } from './parts';

/** Properties that are common to the parts of the panel. */
export interface PartProps {
  trans: Translation;
  send: (request: RunRequest) => Promise<boolean>;
}

/** Return the first line of a failure message, as a sentence. */
function firstLine(failure: string): string {
  return `${failure.split('\n')[0].replace(/[:.]$/, '')}.`;
}

/** Card of one pool: its state, its cost, and its bounds. */
export function PoolCard(
  props: PartProps & {
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
    <article className={`skyward-Pool${props.selected ? ' skyward-mod-selected' : ''}`} data-pool={pool.name}>
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
        <IconButton
          icon={stopIcon}
          title={trans.__('Stop pool %1', pool.name)}
          same={equivalent(run('down', { pool: pool.name }))}
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
          {pool.budget_exhausted && ` ${trans.__('Its nodes finish their tasks, then terminate.')}`}
        </p>
      )}
      {pool.recovered > 0 && (
        <p className="skyward-Pool-line">
          {pool.recovered === 1
            ? trans.__('1 task of the previous kernel')
            : trans.__('%1 tasks of the previous kernel', pool.recovered)}{' '}
          <button className="skyward-Link" onClick={props.onRecovered}>
            {trans.__('Insert a cell that shows them')}
          </button>
        </p>
      )}
      {props.selected && <Bounds {...props} />}
    </article>
  );
}

/** The bounds of a pool: a slider with two thumbs, and number inputs. Sent when a thumb is released. */
function Bounds(props: PartProps & { pool: PoolRow }): JSX.Element {
  const { pool, trans } = props;
  const [draft, setDraft] = React.useState<[number, number] | null>(null);
  React.useEffect(() => setDraft(null), [pool.min, pool.max, pool.name]);
  const [min, max] = draft ?? [pool.min, pool.max];
  const end = Math.max(8, pool.max * 2, max);
  const same = equivalent(run('scale', { pool: pool.name, nodes: bounds(min, max) }));
  const change = (which: 0 | 1, value: number) => {
    const wanted = Math.max(0, Math.round(value) || 0);
    setDraft(which === 0 ? [wanted, Math.max(wanted, max, 1)] : [Math.min(wanted, min), Math.max(1, wanted)]);
  };
  const commit = async () => {
    if (draft && bounds(...draft) !== bounds(pool.min, pool.max)) {
      await props.send(run('scale', { pool: pool.name, nodes: bounds(...draft) }));
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
      {number(0, trans.__('Minimum nodes of pool %1', pool.name))}
      <div className="skyward-Bounds-slider">
        <div className="skyward-Bounds-track">
          <div style={{ left: share(min), right: `calc(100% - ${share(max)})` }} />
        </div>
        {thumb(0, trans.__('Minimum nodes'))}
        {thumb(1, trans.__('Maximum nodes'))}
      </div>
      {number(1, trans.__('Maximum nodes of pool %1', pool.name))}
      <label>{trans.__('max')}</label>
    </div>
  );
}

/** Return the counts of a pool's tasks as text. */
export function taskCounts(pool: PoolRow, trans: Translation): string {
  return [
    trans.__('%1 running', whole(pool.running)),
    trans.__('%1 queued', whole(pool.queued)),
    ...(pool.failed ? [trans.__('%1 ✗', whole(pool.failed))] : [])
  ].join(' · ');
}
