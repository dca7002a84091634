import * as React from 'react';
import { createRoot } from 'react-dom/client';

import { AnyModel } from './kernel';
import { PoolModel } from './model';
import { PoolView } from './view';

/** The live view of a pool, as anywidget takes it. */
export default {
  render({ model, el }: { model: AnyModel; el: HTMLElement }): () => void {
    const state = new PoolModel(model);
    const root = createRoot(el);
    root.render(<PoolView model={state} />);
    return () => {
      root.unmount();
      state.dispose();
    };
  }
};
