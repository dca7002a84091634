import * as React from 'react';

import { Translation } from '../model/translation';

/** A button with the number of a cell, which scrolls to the cell. */
export function CellButton(props: {
  cell: number | null;
  id: string;
  /** True if the cell ran in a previous kernel. */
  former?: boolean;
  openCell: (id: string) => void;
  trans: Translation;
}): JSX.Element {
  const { cell, id, trans } = props;
  if (cell === null) {
    return <span className="skyward-Task-cell">[ ]</span>;
  }
  return (
    <button
      type="button"
      className={`skyward-Task-cell${props.former ? ' skyward-mod-former' : ''}`}
      title={
        props.former
          ? trans.__('Go to the cell that was [%1] before the kernel was restarted', cell)
          : trans.__('Go to cell [%1]', cell)
      }
      disabled={!id}
      onClick={() => props.openCell(id)}
    >
      [{cell}]
    </button>
  );
}
