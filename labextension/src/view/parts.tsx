import { caretDownIcon, caretRightIcon, LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Translation } from '../model/panel';
import { stableOrder } from '../model/order';
import { visible } from '../model/window';

/** Return the current Unix time, and redraw once a second while `on`. */
export function useNow(on: boolean): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    if (!on) {
      return;
    }
    setNow(Date.now() / 1000);
    const timer = window.setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, [on]);
  return now;
}

const FOLDED = 'skyward-folded:';

/** A section of the panel with a heading that folds it; the browser remembers the state. */
export function Section(props: {
  name: string;
  title: string;
  summary?: React.ReactNode;
  actions?: React.ReactNode;
  children: React.ReactNode;
}): JSX.Element {
  const key = FOLDED + props.name;
  const [folded, setFolded] = React.useState(() => window.localStorage.getItem(key) === 'yes');
  const fold = () => {
    window.localStorage.setItem(key, folded ? 'no' : 'yes');
    setFolded(!folded);
  };
  return (
    <section className="skyward-Section" data-section={props.name}>
      <header className="skyward-Section-header">
        <h3>
          <button className="skyward-Section-fold" aria-expanded={!folded} onClick={fold}>
            <Icon icon={folded ? caretRightIcon : caretDownIcon} />
            {props.title}
          </button>
        </h3>
        <span className="skyward-Section-summary">{props.summary}</span>
        {props.actions}
      </header>
      {!folded && props.children}
    </section>
  );
}

/** The label of a state: an icon and a word, never colour alone. */
export function State(props: { icon: string; word: string; tone?: 'good' | 'busy' | 'bad' | 'quiet' }): JSX.Element {
  return (
    <span className={`skyward-State skyward-mod-${props.tone ?? 'quiet'}`}>
      <span aria-hidden>{props.icon}</span> {props.word}
    </span>
  );
}

/** An icon as high as the text. */
function Icon(props: { icon: LabIcon }): JSX.Element {
  return <props.icon.react tag="span" className="skyward-Icon" aria-hidden width="16px" height="16px" />;
}

/** A small button with an icon; its tooltip has `title` and `same`, the equivalent line of `%sky`. */
export function IconButton(props: {
  icon: LabIcon;
  title: string;
  same?: string;
  disabled?: boolean;
  pressed?: boolean;
  /** True if it opens a menu. */
  popup?: boolean;
  onClick: (event: React.MouseEvent<HTMLButtonElement>) => void;
}): JSX.Element {
  const title = props.same ? `${props.title}\n${props.same}` : props.title;
  return (
    <button
      className="skyward-SignButton"
      title={title}
      aria-label={props.title}
      aria-pressed={props.pressed}
      aria-haspopup={props.popup ? 'menu' : undefined}
      disabled={props.disabled}
      onClick={event => {
        event.stopPropagation();
        props.onClick(event);
      }}
    >
      <Icon icon={props.icon} />
    </button>
  );
}

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

/**
 * A virtualized list of rows of one height; one row may be open, and higher. The order is kept while the pointer is
 * over the list.
 */
export function LongList<T>(props: {
  label: string;
  items: readonly T[];
  row: number;
  most: number;
  keyOf: (item: T) => string;
  render: (item: T) => React.ReactNode;
  open?: string | null;
  openHeight?: number;
  /** Called when Escape is pressed while a row is open. */
  onEscape?: () => void;
  renderOpen?: (item: T) => React.ReactNode;
}): JSX.Element {
  const [top, setTop] = React.useState(0);
  const held = React.useRef<string[] | null>(null);
  const { row, open = null, openHeight = 0 } = props;
  const items = held.current ? stableOrder(props.items, held.current, props.keyOf) : props.items;
  const opened = open === null ? -1 : items.findIndex(item => props.keyOf(item) === open);
  const all = items.length * row + (opened >= 0 ? openHeight : 0);
  const view = Math.min(props.most, all);
  const seen = visible(items.length, row, top, view, opened, openHeight);
  return (
    <div
      className="skyward-LongList"
      style={{ height: view }}
      onKeyDown={event => {
        if (event.key === 'Escape' && opened >= 0) {
          event.stopPropagation();
          props.onEscape?.();
        }
      }}
      onMouseEnter={() => {
        held.current = props.items.map(props.keyOf);
      }}
      onMouseLeave={() => {
        held.current = null;
      }}
      onScroll={event => setTop(event.currentTarget.scrollTop)}
    >
      <ul aria-label={props.label} style={{ height: seen.height, paddingTop: seen.above }}>
        {items.slice(seen.first, seen.end).map((item, index) => (
          <li key={props.keyOf(item)} aria-setsize={items.length} aria-posinset={seen.first + index + 1}>
            <div className="skyward-LongList-row" style={{ height: row }}>
              {props.render(item)}
            </div>
            {seen.first + index === opened && (
              <div style={{ height: openHeight, overflow: 'hidden' }}>{props.renderOpen?.(item)}</div>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
