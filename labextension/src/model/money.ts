import { CellRow, PoolRow } from '../protocol';
import { spentBy } from './format';

/** The cells of a pool, the latest first, and what it has spent on none of them: on nodes that boot, idle or leave. */
export function accounts(
  pool: PoolRow,
  cells: readonly CellRow[],
  now: number
): { spent: number; cells: CellRow[]; rest: number } {
  const spent = spentBy(now, pool);
  const onCells = cells.reduce((sum, row) => sum + row.cost, 0);
  return {
    spent,
    cells: [...cells].sort((a, b) => b.cell - a.cell),
    rest: Math.max(0, spent - onCells)
  };
}
