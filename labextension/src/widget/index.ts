import { Model } from './kernel';
import { PoolView } from './view';

/** The live view of a pool, as anywidget takes it. */
export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const view = new PoolView(model, el);
    return () => view.end();
  }
};
