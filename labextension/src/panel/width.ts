import { SplitPanel, Widget } from '@lumino/widgets';

/** Preferred width of the panel, pixels. JupyterLab's default for side bars is about 250. */
const WIDTH = 320;
/** Minimum width of a window in which the panel is widened, pixels. */
const WINDOW = 960;
const KEY = 'skyward-width-given';

/**
 * Widen the side bar for the panel, the first time that the panel is opened in this browser. After that the width is
 * the user's, and JupyterLab keeps it. `restored`: the panel was open in the last session.
 */
export function setInitialWidth(panel: Widget, restored: boolean): void {
  if (window.localStorage.getItem(KEY)) {
    return;
  }
  window.localStorage.setItem(KEY, 'yes');
  const split = restored ? null : splitAround(panel);
  if (!split || split.node.clientWidth < WINDOW) {
    return;
  }
  const sizes = split.relativeSizes();
  const side = split.widgets.findIndex(each => each.contains(panel));
  const main = split.widgets.findIndex(each => each.id === 'jp-main-dock-panel');
  const missing = WIDTH / split.node.clientWidth - sizes[side];
  if (main >= 0 && missing > 0) {
    sizes[side] += missing;
    sizes[main] -= missing;
    split.setRelativeSizes(sizes);
  }
}

/** Return the split panel around a side bar and the main area. */
function splitAround(panel: Widget): SplitPanel | null {
  let around = panel.parent;
  while (around && !(around instanceof SplitPanel)) {
    around = around.parent;
  }
  return around;
}
