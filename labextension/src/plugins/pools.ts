import { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { NotebookPools } from '../kernel/pools';
import { INotebookPools } from '../tokens';

/** Follows the notebook in focus and the pools of its kernel. */
export const pools: JupyterFrontEndPlugin<INotebookPools> = {
  id: 'skyward-panel:pools',
  description: 'Follows the pools of the notebook in focus.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator],
  provides: INotebookPools,
  activate: (_, tracker: INotebookTracker, translator: ITranslator | null) =>
    new NotebookPools(tracker, (translator ?? nullTranslator).load('skyward'))
};
