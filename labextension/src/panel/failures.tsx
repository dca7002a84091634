import * as React from 'react';

import { LinkButton } from '../components/button';
import { useNow } from '../components/hooks';
import { State } from '../components/state';
import { retryStatus } from '../model/booting';
import { equivalent } from '../model/equivalent';
import { Translation } from '../model/translation';
import { StartupFailureRow } from '../protocol';
import { IStartLogs } from '../tokens';

/** Maximum number of failed nodes that are shown; the others are counted. */
const SHOWN = 3;

/** The nodes of a pool that failed to start: the phase, the reason, and when they are retried. */
export function StartupFailures(props: {
  rows: readonly StartupFailureRow[];
  logs: IStartLogs;
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
        <li key={row.rank} className="skyward-Failure" data-rank={row.rank}>
          <p className="skyward-Failure-head">
            <State icon="✗" word={trans.__('node %1 failed', row.rank)} tone="bad" />
            <span className="skyward-Failure-phase">{row.phase}</span>
          </p>
          <p className="skyward-Failure-reason">{row.reason}</p>
          {row.lines.length > 0 && <pre>{row.lines.join('\n')}</pre>}
          <p className="skyward-Failure-foot">
            <span>{retryStatus(row, now, trans)}</span>
            <LinkButton
              title={equivalent({ command: 'logs', arguments: { pool: row.pool, node: row.rank } })}
              onClick={() => props.logs.open(row.pool, row.rank)}
            >
              {trans.__('Full log')}
            </LinkButton>
          </p>
        </li>
      ))}
      {rows.length > SHOWN && (
        <li className="skyward-Empty">{trans.__('%1 more failed to start.', rows.length - SHOWN)}</li>
      )}
    </ul>
  );
}
