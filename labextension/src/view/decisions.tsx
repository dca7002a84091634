import * as React from 'react';

import { chart, LINES } from '../model/chart';
import { clock, money, whole } from '../model/format';
import { decisionsInOrder } from '../model/lists';
import { Translation } from '../model/panel';
import { DecisionRow, PointRow } from '../protocol';
import { Section, useNow } from './parts';

const WIDTH = 280;
const HEIGHT = 56;
const SHOWN = 30;

/** Chart of queued and running tasks, and of desired and current nodes, over the last 15 minutes. */
function Chart(props: { points: PointRow[]; trans: Translation }): JSX.Element {
  const now = useNow(true);
  const { lines, top } = chart(props.points, now, WIDTH, HEIGHT);
  const last = props.points[props.points.length - 1];
  const { trans } = props;
  const words = {
    queued: trans.__('queued'),
    running: trans.__('running'),
    desired: trans.__('desired'),
    current: trans.__('current')
  };
  return (
    <figure className="skyward-Chart">
      <svg
        viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={trans.__('Tasks and nodes over time; maximum %1', top)}
      >
        {LINES.map(line => (
          <path key={line} className={`skyward-Chart-${line}`} d={lines[line]} />
        ))}
      </svg>
      <span className="skyward-Chart-top" aria-hidden>
        {whole(top)}
      </span>
      <figcaption>
        {LINES.map(line => (
          <span key={line} className={`skyward-Chart-${line}`}>
            <svg viewBox="0 0 14 4" aria-hidden>
              <path className={`skyward-Chart-${line}`} d="M0 2H14" />
            </svg>
            {words[line]} <b>{last ? whole(last[line]) : '–'}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

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
export function Decisions(props: { rows: DecisionRow[]; points: PointRow[]; trans: Translation }): JSX.Element {
  const { trans } = props;
  const rows = decisionsInOrder(props.rows).slice(0, SHOWN);
  return (
    <Section name="decisions" title={trans.__('Scaling')}>
      <Chart points={props.points} trans={trans} />
      {rows.length === 0 && <p className="skyward-Empty">{trans.__('No scaling decisions yet.')}</p>}
      <ul className="skyward-Decisions" aria-label={trans.__('Decisions')}>
        {rows.map(row => (
          <Decision key={row.number} row={row} trans={trans} />
        ))}
      </ul>
    </Section>
  );
}
