import * as React from 'react';

import { chart, LINES } from '../model/chart';
import { whole } from '../model/format';
import { Translation } from '../model/translation';
import { PointRow } from '../protocol';
import { useNow } from './hooks';

/** Size of the drawing, in its own units; it is stretched to the width of its section. */
const WIDTH = 280;
const HEIGHT = 56;

/** Chart of queued and running tasks, and of desired and current nodes, over the last 15 minutes. */
export function Chart(props: { points: readonly PointRow[]; trans: Translation }): JSX.Element {
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
