import * as React from 'react';
import { List, RowComponentProps, useListRef } from 'react-window';

import { whole } from '../model/format';
import { stableOrder } from '../model/order';
import { Translation } from '../model/translation';
import { LinkButton } from './button';

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
  trans: Translation;
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

/** Return the number of rows that are not in the held order, as text. */
function news<T>(items: readonly T[], held: string[], keyOf: (item: T) => string, trans: Translation): string {
  const known = new Set(held);
  const count = items.filter(item => !known.has(keyOf(item))).length;
  return count ? trans.__('↑ %1 new', whole(count)) : trans.__('↑ The order has changed');
}

/**
 * A list of rows of one height, of which only the visible ones are drawn; one row may be open, and higher. The order is
 * kept while the pointer is over the list; a button below it then counts the new rows, and applies the current order.
 */
export function LongList<T>(props: ListProps<T>): JSX.Element {
  const [held, setHeld] = React.useState<string[] | null>(null);
  const list = useListRef(null);
  const { row, keyOf, trans, open = null, openHeight = 0 } = props;
  const items = held ? stableOrder(props.items, held, keyOf) : props.items;
  const isOutdated = items.some((item, index) => item !== props.items[index]);
  const openIndex = open === null ? -1 : items.findIndex(item => keyOf(item) === open);
  const height = Math.min(props.most, items.length * row + (openIndex >= 0 ? openHeight : 0));
  const hold = () => setHeld(props.items.map(keyOf));
  return (
    <div onMouseEnter={hold} onMouseLeave={() => setHeld(null)}>
      <List<Drawn, 'ul'>
        listRef={list}
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
      />
      {held && isOutdated && (
        <p className="skyward-LongList-news">
          <LinkButton
            title={trans.__('Rows do not move while the pointer is here: show the current order')}
            onClick={() => {
              hold();
              list.current?.element?.scrollTo?.(0, 0);
            }}
          >
            {news(props.items, held, keyOf, trans)}
          </LinkButton>
        </p>
      )}
    </div>
  );
}
