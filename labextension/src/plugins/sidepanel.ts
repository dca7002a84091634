import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Menu } from '@lumino/widgets';

import { icon } from '../panel/icons';
import { SkywardPanel } from '../panel/panel';
import { setInitialWidth } from '../panel/width';
import { INodeTerminals, INotebookPools, IPoolActions, ISidePanel, IStartLogs } from '../tokens';
import { COMMANDS } from './commands';
import { SETTINGS_ID } from './settings';

/** A command of JupyterLab itself, which may be missing. */
const SETTINGS = 'settingeditor:open';

/** The side panel with the pools of the notebook in focus. */
export const sidePanel: JupyterFrontEndPlugin<ISidePanel> = {
  id: SETTINGS_ID,
  description: 'Side panel with the pools of the notebook in focus.',
  autoStart: true,
  requires: [INotebookPools, IPoolActions, IStartLogs, INodeTerminals],
  optional: [ITranslator, ILayoutRestorer],
  provides: ISidePanel,
  activate: (
    app: JupyterFrontEnd,
    model: INotebookPools,
    actions: IPoolActions,
    logs: IStartLogs,
    terminals: INodeTerminals,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    const menu = new Menu({ commands: app.commands });
    menu.addItem({ command: COMMANDS.newPool });
    menu.addItem({ command: COMMANDS.help });
    menu.addItem({ command: SETTINGS, args: { query: 'Skyward' } });
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: COMMANDS.stopAll });
    const openMenu = (button: HTMLElement) => {
      const { left, bottom } = button.getBoundingClientRect();
      menu.open(left, bottom);
    };

    const panel = new SkywardPanel(model, trans, { actions, logs, terminals, openMenu });
    panel.id = 'skyward-panel';
    panel.title.icon = icon;
    panel.title.caption = trans.__('Skyward: pools of this notebook');
    app.shell.add(panel, 'left', { rank: 600 });
    restorer?.add(panel, panel.id);
    void app.restored.then(() => {
      if (panel.isVisible) {
        setInitialWidth(panel, true);
      }
      panel.onShown = () => window.requestAnimationFrame(() => setInitialWidth(panel, false));
    });
    return { show: () => app.shell.activateById(panel.id) };
  }
};
