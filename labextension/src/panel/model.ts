import * as React from 'react';

import { useRedraw } from '../components/hooks';
import { INotebookPools } from '../tokens';

/** Redraw when the pools have changed, at most once per frame. */
export function useModel(model: INotebookPools): void {
  const subscribe = React.useCallback(
    (onChange: () => void) => {
      model.changed.connect(onChange);
      return () => {
        model.changed.disconnect(onChange);
      };
    },
    [model]
  );
  useRedraw(subscribe);
}
