import * as React from 'react';

import { retryStatus } from '../model/booting';
import { equivalent } from '../model/equivalent';
import { Translation } from '../model/panel';
import { StartupFailureRow } from '../protocol';
import { State, useNow } from './parts';

/** Maximum number of failed nodes that are shown; the others are counted. */
const SHOWN = 3;

/** The nodes of a pool that failed to start: the phase, the reason, and when they are retried. */
export function StartupFailures(props: {
  rows: readonly StartupFailureRow[];
  openLog: (pool: string, node: number) => void;
  trans: Translation;
}): JSX.Element | null {
  const { rows, trans } = props;
  const now = useNow(rows.some(row => row.retry_at !== null));
  if (!rows.length) {
    return null;
  }
  const shown = [...rows].sort((a, b) => a.rank - b.rank).slice(0, SHOWN);
  return (
    <ul className="skyward-StartupFailures" aria-label={trans.__('Nodes that failed to start')}>
      {shown.map(row => (
        <li key={row.rank} className="skyward-Trouble" data-rank={row.rank}>
          <p className="skyward-Trouble-head">
            <State icon="✗" word={trans.__('node %1 failed', row.rank)} tone="bad" />
            <span className="skyward-Trouble-phase">{row.phase}</span>
          </p>
          <p className="skyward-Trouble-reason">{row.reason}</p>
          {row.lines.length > 0 && <pre>{row.lines.join('\n')}</pre>}
          <p className="skyward-Trouble-foot">
            <span>{retryStatus(row, now, trans)}</span>
            <button
              className="skyward-Link"
              title={equivalent({ command: 'logs', arguments: { pool: row.pool, node: row.rank } })}
              onClick={() => props.openLog(row.pool, row.rank)}
            >
              {trans.__('Full log')}
            </button>
          </p>
        </li>
      ))}
      {rows.length > SHOWN && (
        <li className="skyward-Empty">{trans.__('%1 more failed to start.', rows.length - SHOWN)}</li>
      )}
    </ul>
  );
}
