import * as React from 'react';

import { Translation } from '../model/translation';
import { PoolRow } from '../protocol';

/** Return the error of bounds that are wrong, as a sentence; empty if they can be sent. */
function problem([min, max]: readonly [string, string], trans: Translation): string {
  const isWhole = (text: string) => /^\d+$/.test(text.trim());
  if (!isWhole(min) || !isWhole(max)) {
    return trans.__('The bounds are whole numbers of nodes, 0 or more.');
  }
  if (Number(max) < 1) {
    return trans.__('The maximum is 1 or more.');
  }
  return Number(min) > Number(max)
    ? trans.__('The minimum, %1, is above the maximum, %2: change one of them.', Number(min), Number(max))
    : '';
}

/**
 * The bounds of a pool: a slider with two thumbs, and number inputs. Sent when a thumb is released, or a number is
 * complete; numbers that are wrong are not sent, and the reason is shown.
 */
export function Bounds(props: {
  pool: PoolRow;
  /** Change the bounds; the inputs show the new values until the promise is settled. */
  onScale: (min: number, max: number) => Promise<unknown>;
  /** Return the equivalent line of code. */
  equivalent: (min: number, max: number) => string;
  trans: Translation;
}): JSX.Element {
  const { pool, trans } = props;
  const [draft, setDraft] = React.useState<[string, string] | null>(null);
  const [isRefused, setIsRefused] = React.useState(false);
  const reset = () => {
    setDraft(null);
    setIsRefused(false);
  };
  React.useEffect(reset, [pool.min, pool.max, pool.name]);
  const texts = draft ?? ([`${pool.min}`, `${pool.max}`] as const);
  const wrong = problem(texts, trans);
  const [min, max] = wrong ? [pool.min, pool.max] : texts.map(Number);
  const end = Math.max(8, pool.max * 2, max);
  /** A number changes alone. */
  const type = (which: 0 | 1, text: string) => {
    setDraft(which === 0 ? [text, texts[1]] : [texts[0], text]);
  };
  /** A dragged thumb takes the other one along. */
  const drag = (which: 0 | 1, value: number) => {
    const bounds = which === 0 ? [value, Math.max(value, max, 1)] : [Math.min(value, min), Math.max(1, value)];
    setDraft([`${bounds[0]}`, `${bounds[1]}`]);
  };
  const commit = async () => {
    if (draft && wrong) {
      setIsRefused(true);
      return;
    }
    if (min !== pool.min || max !== pool.max) {
      await props.onScale(min, max);
    }
    reset();
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
      style={{ width: `${texts[which].length + 2.5}ch` }}
      aria-label={label}
      aria-invalid={isRefused && wrong !== ''}
      min={which}
      value={texts[which]}
      onChange={event => type(which, event.currentTarget.value)}
      onBlur={() => void commit()}
      onKeyDown={event => {
        if (event.key === 'Enter') {
          event.preventDefault();
          void commit();
        } else if (event.key === 'Escape') {
          reset();
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
      onChange={event => drag(which, event.currentTarget.valueAsNumber)}
      onPointerUp={() => void commit()}
      onKeyUp={event => event.key.startsWith('Arrow') && void commit()}
    />
  );
  const share = (value: number) => `${(value / end) * 100}%`;
  return (
    <>
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
      {isRefused && wrong && (
        <p className="skyward-Bounds-wrong" role="alert">
          {wrong}
        </p>
      )}
    </>
  );
}
