/** Which rows of a long list are drawn. */
export interface Visible {
  /** The first row that is drawn, and the one after the last. */
  first: number;
  end: number;
  /** Height of the whole list, and of what is left out above. */
  height: number;
  above: number;
}

/**
 * The rows to draw of `count`, all `row` pixels high, one of which may be open and `extra` pixels higher.
 */
export function visible(
  count: number,
  row: number,
  top: number,
  view: number,
  open = -1,
  extra = 0,
  spare = 4
): Visible {
  const isOpen = open >= 0 && open < count;
  const start = (index: number) =>
    index * row + (isOpen && index > open ? extra : 0);
  const at = (offset: number) => {
    const opened = isOpen ? (open + 1) * row : Infinity;
    if (offset < opened) {
      return Math.floor(offset / row);
    }
    return offset < opened + extra ? open : Math.floor((offset - extra) / row);
  };
  const height = start(count);
  const last = Math.max(0, count - 1);
  const first = Math.min(last, Math.max(0, at(Math.max(0, top)) - spare));
  const end = Math.min(count, Math.max(0, at(top + view)) + 1 + spare);
  return { first, end: Math.max(first, end), height, above: start(first) };
}
