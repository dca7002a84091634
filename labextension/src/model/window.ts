/** The range of rows of a long list that is drawn. */
export interface Visible {
  /** Index of the first row that is drawn, and of the one after the last. */
  first: number;
  end: number;
  /** Height of the whole list, and of the rows that are left out above, in pixels. */
  height: number;
  above: number;
}

/**
 * Return the rows to draw of `count` rows of `row` pixels each, one of which may be open and `extra` pixels higher.
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
  const start = (index: number) => index * row + (isOpen && index > open ? extra : 0);
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
