import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { equivalent, run } from '../model/equivalent';
import { PoolRow, RunRequest } from '../protocol';
import { INotebookPools, IPoolActions } from '../tokens';
import { followSettings } from './settings';

export const LOAD = '%load_ext skyward';
const CELL = '%%sky\n';

/** The source of a cell that prints the tasks of a previous kernel in a pool, with their output. */
const recovered = (pool: string) =>
  `pool = ${equivalent(run('up', { pool, options: {} }))}\nfor task in pool.recovered:\n    print(task, task.output, sep="\\n")`;

/** Insert a cell with this text into the notebook in focus, below the active cell, and enter edit mode. */
function insertCell(tracker: INotebookTracker, text: string): void {
  const notebook = tracker.currentWidget?.content;
  if (!notebook) {
    return;
  }
  if (notebook.activeCell?.model.sharedModel.getSource().trim()) {
    NotebookActions.insertBelow(notebook);
  }
  notebook.activeCell?.model.sharedModel.setSource(text);
  notebook.mode = 'edit';
  notebook.activate();
}

/** Provides the actions on pools that need a notebook or a dialog. */
export const actions: JupyterFrontEndPlugin<IPoolActions> = {
  id: 'skyward-panel:actions',
  description: 'Inserts cells, and stops pools after confirmation.',
  autoStart: true,
  requires: [INotebookPools, INotebookTracker],
  optional: [ITranslator, ISettingRegistry],
  provides: IPoolActions,
  activate: (
    app: JupyterFrontEnd,
    model: INotebookPools,
    tracker: INotebookTracker,
    translator: ITranslator | null,
    registry: ISettingRegistry | null
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    let confirmStop = true;
    followSettings(app, registry, settings => {
      confirmStop = settings.get('confirmStop').composite !== false;
    });
    const stop = async (request: RunRequest, pools: PoolRow[]): Promise<void> => {
      const lost = pools.reduce((sum, each) => sum + each.queued + each.running, 0);
      if (lost && confirmStop) {
        const { button } = await showDialog({
          title: trans.__('Stop %1?', pools.map(each => each.name).join(', ')),
          body:
            lost === 1
              ? trans.__('1 running or queued task will be lost. (%1)', equivalent(request))
              : trans.__('%1 running or queued tasks will be lost. (%2)', lost, equivalent(request)),
          buttons: [Dialog.cancelButton({ label: trans.__('Keep') }), Dialog.warnButton({ label: trans.__('Stop') })]
        });
        if (!button.accept) {
          return;
        }
      }
      await model.send(request);
    };
    return {
      insertLoad: () => insertCell(tracker, LOAD),
      insertCell: () => insertCell(tracker, CELL),
      insertLine: line => insertCell(tracker, line),
      insertRecovered: pool => insertCell(tracker, recovered(pool.name)),
      stopPool: pool => void stop(run('down', { pool: pool.name }), [pool]),
      stopAll: () => void stop(run('down', { every: true }), model.pools)
    };
  }
};
