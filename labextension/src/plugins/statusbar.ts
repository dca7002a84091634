import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { StatusItem } from '../panel/status';
import { INotebookPools, ISidePanel } from '../tokens';
import { followSettings } from './settings';

/** Shows the number of nodes and their cost per hour in the status bar. */
export const statusItem: JupyterFrontEndPlugin<void> = {
  id: 'skyward-panel:status',
  description: 'Number of nodes and their cost per hour in the status bar.',
  autoStart: true,
  requires: [INotebookPools, ISidePanel],
  optional: [ITranslator, ISettingRegistry, IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    model: INotebookPools,
    sidePanel: ISidePanel,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null // null in Notebook 7
  ) => {
    if (!statusBar) {
      return;
    }
    const trans = (translator ?? nullTranslator).load('skyward');
    const item = new StatusItem(model, trans, () => sidePanel.show());
    statusBar.registerStatusItem(statusItem.id, { item, align: 'left', rank: 900 });
    followSettings(app, registry, settings => item.setHidden(settings.get('statusBar').composite === false));
  }
};
