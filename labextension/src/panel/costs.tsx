import * as React from 'react';

import { useNow } from '../components/hooks';
import { LongList } from '../components/list';
import { Section } from '../components/section';
import { costBreakdown } from '../model/cost';
import { money, whole } from '../model/format';
import { Translation } from '../model/translation';
import { CellRow, PoolRow } from '../protocol';
import { CellButton } from './cell';

const ROW = 24;
const MOST = 168;

/** The cost of a pool by cell, and the rest, which no cell has used. */
export function Costs(props: {
  pool: PoolRow;
  cells: CellRow[];
  openCell: (id: string) => void;
  trans: Translation;
}): JSX.Element {
  const { pool, trans } = props;
  const now = useNow(pool.per_hour > 0);
  const { spent, cells, rest } = costBreakdown(pool, props.cells, now);
  return (
    <Section name="costs" title={trans.__('Cost')} summary={trans.__('%1 spent', money(spent))}>
      {cells.length === 0 && <p className="skyward-Empty">{trans.__('No costs of cells yet.')}</p>}
      <LongList
        label={trans.__('Cost of each cell on pool %1', pool.name)}
        items={cells}
        row={ROW}
        most={MOST}
        keyOf={row => `${row.cell}.${row.cell_id}.${row.former}`}
        trans={trans}
        render={row => (
          <div className="skyward-Task">
            <CellButton cell={row.cell} id={row.cell_id} former={row.former} openCell={props.openCell} trans={trans} />
            <span className="skyward-Task-name">{row.code}</span>
            <span className="skyward-Task-yields">
              {row.tasks === 1 ? trans.__('1 task') : trans.__('%1 tasks', whole(row.tasks))}
            </span>
            <span className="skyward-Cost-cost">{money(row.cost)}</span>
          </div>
        )}
      />
      {spent > 0 && (
        <p
          className="skyward-Cost-rest"
          title={trans.__('Cost of nodes while they boot, idle or stop, and of tasks that were lost with their node')}
        >
          <span>{trans.__('booting, idle, stopping')}</span>
          <span className="skyward-Cost-cost">{money(rest)}</span>
        </p>
      )}
    </Section>
  );
}
