import { SplitPanel, Widget } from '@lumino/widgets';

/** Pixels that the panel is drawn for. JupyterLab gives its side bars about 250, whatever is in them. */
const WIDTH = 320;
/** Pixels that a window must have for the panel to take more of them than it is given. */
const WINDOW = 960;
const KEY = 'skyward-width-given';

/**
 * Give the side bar the width of the panel, the first time that the panel is opened in this browser. What it is after
 * that is the user's, and JupyterLab keeps it. `restored`: the panel is open since it was in another session.
 */
export function giveWidth(panel: Widget, restored: boolean): void {
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

/** What a side bar and the main area share the window in. */
function splitAround(panel: Widget): SplitPanel | null {
  let around = panel.parent;
  while (around && !(around instanceof SplitPanel)) {
    around = around.parent;
  }
  return around;
}
