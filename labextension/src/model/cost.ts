import { CellRow, PoolRow } from '../protocol';
import { spentBy } from './format';

/** Break down the cost of a pool: its cells, the latest first, and the rest: booting, idle and stopping nodes. */
export function costBreakdown(
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
