import * as React from 'react';

import { share, size } from '../model/format';

/** A bar that is filled to a share from 0 to 1. */
export function Bar(props: { value: number }): JSX.Element {
  return (
    <span className="skyward-Bar" aria-hidden>
      <span style={{ width: share(props.value) }} />
    </span>
  );
}

/** A share as a number and a bar; a dash if it is unknown. */
export function Gauge(props: {
  label: string;
  value: number | null | undefined;
  /** Used memory of the GPUs, bytes. */
  bytes?: number | null;
}): JSX.Element {
  const { value, bytes } = props;
  return (
    <span className="skyward-Gauge" title={props.label}>
      <span className="skyward-Gauge-value">{share(value)}</span>
      {typeof value === 'number' && <Bar value={value} />}
      {typeof bytes === 'number' && <span className="skyward-Gauge-memory">{size(bytes)}</span>}
    </span>
  );
}
