import * as React from 'react';

import { Translation } from '../model/translation';
import { PoolRow } from '../protocol';

/** The bounds of a pool: a slider with two thumbs, and number inputs. Sent when a thumb is released. */
export function Bounds(props: {
  pool: PoolRow;
  /** Change the bounds; the inputs show the new values until the promise is settled. */
  onScale: (min: number, max: number) => Promise<unknown>;
  /** Return the equivalent line of code. */
  equivalent: (min: number, max: number) => string;
  trans: Translation;
}): JSX.Element {
  const { pool, trans } = props;
  const [draft, setDraft] = React.useState<[number, number] | null>(null);
  React.useEffect(() => setDraft(null), [pool.min, pool.max, pool.name]);
  const [min, max] = draft ?? [pool.min, pool.max];
  const end = Math.max(8, pool.max * 2, max);
  const change = (which: 0 | 1, value: number) => {
    const wanted = Math.max(0, Math.round(value) || 0);
    setDraft(which === 0 ? [wanted, Math.max(wanted, max, 1)] : [Math.min(wanted, min), Math.max(1, wanted)]);
  };
  const commit = async () => {
    if (draft && (draft[0] !== pool.min || draft[1] !== pool.max)) {
      await props.onScale(...draft);
    }
    setDraft(null);
  };
  const common = {
    title: props.equivalent(min, max),
    disabled: pool.state === 'stopping' || pool.state === 'closed'
  };
  const number = (which: 0 | 1, label: string) => (
    <input
      {...common}
      type="number"
      className="skyward-Bounds-number jp-mod-styled"
      style={{ width: `${String(which === 0 ? min : max).length + 2.5}ch` }}
      aria-label={label}
      min={which}
      value={which === 0 ? min : max}
      onChange={event => change(which, event.currentTarget.valueAsNumber)}
      onBlur={() => void commit()}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          event.preventDefault();
          void commit();
        } else if (event.key === 'Escape') {
          setDraft(null);
        }
      }}
    />
  );
  const thumb = (which: 0 | 1, label: string) => (
    <input
      {...common}
      type="range"
      className="skyward-Bounds-thumb"
      aria-label={label}
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
      <span>{trans.__('min')}</span>
      {number(0, trans.__('Minimum nodes of pool %1', pool.name))}
      <div className="skyward-Bounds-slider">
        <div className="skyward-Bounds-track">
          <div style={{ left: share(min), right: `calc(100% - ${share(max)})` }} />
        </div>
        {thumb(0, trans.__('Minimum nodes'))}
        {thumb(1, trans.__('Maximum nodes'))}
      </div>
      {number(1, trans.__('Maximum nodes of pool %1', pool.name))}
      <span>{trans.__('max')}</span>
    </div>
  );
}
