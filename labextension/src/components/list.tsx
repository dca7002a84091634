import * as React from 'react';
import { List, RowComponentProps } from 'react-window';

import { stableOrder } from '../model/order';

/** Number of rows that are drawn above and below the visible ones. */
const SPARE = 4;

interface ListProps<T> {
  label: string;
  items: readonly T[];
  /** Height of a row, pixels. */
  row: number;
  /** Maximum height of the list, pixels. */
  most: number;
  keyOf: (item: T) => string;
  render: (item: T) => React.ReactNode;
  /** Key of the row that is open, its additional height in pixels, and its content. */
  open?: string | null;
  openHeight?: number;
  renderOpen?: (item: T) => React.ReactNode;
  /** Called when Escape is pressed while a row is open. */
  onEscape?: () => void;
}

interface Drawn {
  row: number;
  openIndex: number;
  openHeight: number;
  keyAt: (index: number) => string;
  renderAt: (index: number) => React.ReactNode;
  renderOpenAt: (index: number) => React.ReactNode;
}

function Row({ index, style, ariaAttributes, ...drawn }: RowComponentProps<Drawn>): JSX.Element {
  return (
    <li {...ariaAttributes} style={style}>
      <div className="skyward-LongList-row" style={{ height: drawn.row }}>
        {drawn.renderAt(index)}
      </div>
      {index === drawn.openIndex && (
        <div style={{ height: drawn.openHeight, overflow: 'hidden' }}>{drawn.renderOpenAt(index)}</div>
      )}
    </li>
  );
}

function rowHeight(index: number, drawn: Drawn): number {
  return drawn.row + (index === drawn.openIndex ? drawn.openHeight : 0);
}

function rowKey(index: number, drawn: Drawn): string {
  return drawn.keyAt(index);
}

/**
 * A list of rows of one height, of which only the visible ones are drawn; one row may be open, and higher. The order is
 * kept while the pointer is over the list.
 */
export function LongList<T>(props: ListProps<T>): JSX.Element {
  const held = React.useRef<string[] | null>(null);
  const { row, keyOf, open = null, openHeight = 0 } = props;
  const items = held.current ? stableOrder(props.items, held.current, keyOf) : props.items;
  const openIndex = open === null ? -1 : items.findIndex(item => keyOf(item) === open);
  const height = Math.min(props.most, items.length * row + (openIndex >= 0 ? openHeight : 0));
  return (
    <List<Drawn, 'ul'>
      tagName="ul"
      className="skyward-LongList"
      aria-label={props.label}
      style={{ height }}
      rowCount={items.length}
      rowHeight={rowHeight}
      rowKey={rowKey}
      rowComponent={Row}
      rowProps={{
        row,
        openIndex,
        openHeight,
        keyAt: index => keyOf(items[index]),
        renderAt: index => props.render(items[index]),
        renderOpenAt: index => props.renderOpen?.(items[index])
      }}
      overscanCount={SPARE}
      onKeyDown={event => {
        if (event.key === 'Escape' && openIndex >= 0) {
          event.stopPropagation();
          props.onEscape?.();
        }
      }}
      onMouseEnter={() => {
        held.current = props.items.map(keyOf);
      }}
      onMouseLeave={() => {
        held.current = null;
      }}
    />
  );
}
