import * as React from 'react';

import { clock, money } from '../model/format';
import { decisionsInOrder } from '../model/lists';
import { Translation } from '../model/translation';
import { DecisionRow, PointRow } from '../protocol';
import { Chart } from './chart';

/** Maximum number of decisions that are shown. */
const SHOWN = 30;

function Decision(props: { row: DecisionRow; trans: Translation }): JSX.Element {
  const { row, trans } = props;
  const moved = row.before !== row.after;
  const inputs: [string, string][] = [
    [trans.__('queued, running'), `${row.queued}, ${row.inflight}`],
    [trans.__('slots'), `${row.capacity}`],
    [trans.__('nodes'), trans.__('%1 active, %2 booting, %3 stopping', row.active, row.booting, row.leaving)],
    [trans.__('idle for'), `${row.idle_for} s`],
    [trans.__('spent, cost per hour'), `${money(row.spent)}, ${money(row.per_hour)}`],
    [trans.__('decided by'), row.by === 'policy' ? row.policy : row.by]
  ];
  return (
    <li>
      <details
        className="skyward-Decision"
        onKeyDown={event => {
          if (event.key === 'Escape') {
            event.currentTarget.open = false;
          }
        }}
      >
        <summary>
          <span className="skyward-Decision-at">{clock(row.at)}</span>
          <span className="skyward-Decision-change">{moved ? `${row.before} → ${row.after}` : trans.__('steady')}</span>
          <span className="skyward-Decision-reason">
            {row.reason}
            {row.held_back && ` (${trans.__('held back: %1', row.held_back)})`}
            {row.times > 1 && ` ×${row.times}`}
          </span>
        </summary>
        <dl>
          {inputs.map(([name, value]) => (
            <React.Fragment key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </React.Fragment>
          ))}
        </dl>
      </details>
    </li>
  );
}

/** The chart and the scaling decisions of a pool, the newest first. */
export function Decisions(props: {
  rows: readonly DecisionRow[];
  points: readonly PointRow[];
  trans: Translation;
}): JSX.Element {
  const { trans } = props;
  const rows = decisionsInOrder(props.rows).slice(0, SHOWN);
  return (
    <>
      <Chart points={props.points} trans={trans} />
      {rows.length === 0 && <p className="skyward-Empty">{trans.__('No scaling decisions yet.')}</p>}
      <ul className="skyward-Decisions" aria-label={trans.__('Decisions')}>
        {rows.map(row => (
          <Decision key={row.number} row={row} trans={trans} />
        ))}
      </ul>
    </>
  );
}
