import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Dialog, ICommandPalette, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Menu } from '@lumino/widgets';

import { icon } from './icon';
import { equivalent, run, RunRequest } from './model/equivalent';
import { PanelModel } from './model/panel';
import { PoolRow } from './protocol';
import { addCommands } from './palette';
import { openStartLog } from './startlog';
import { startTerminal } from './terminal';
import { Actions, SkywardPanel } from './view/panel';
import { StatusItem } from './view/status';
import { setInitialWidth } from './width';

const ID = 'skyward-panel:plugin';

const COMMANDS = {
  show: 'skyward:show-panel',
  load: 'skyward:insert-load-ext',
  cell: 'skyward:insert-cell'
} as const;

const LOAD = '%load_ext skyward';
const CELL = '%%sky\n';
/** A command of JupyterLab itself, which may be missing. */
const SETTINGS = 'settingeditor:open';

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

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Side panel with the pools of the notebook in focus.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ITranslator, ICommandPalette, ISettingRegistry, IStatusBar, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    translator: ITranslator | null,
    palette: ICommandPalette | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null,
    restorer: ILayoutRestorer | null,
    labShell: ILabShell | null // null in Notebook 7: its terminals are separate pages
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    const model = new PanelModel(tracker, trans);
    let confirmStop = true;

    const stop = async (request: RunRequest, pools: PoolRow[]): Promise<void> => {
      const lost = pools.reduce((sum, each) => sum + each.queued + each.running, 0);
      if (lost && confirmStop) {
        const { button } = await showDialog({
          title: trans.__('Stop %1?', pools.map(each => each.name).join(', ')),
          body: trans.__('%1 running or queued tasks will be lost. (%2)', lost, equivalent(request)),
          buttons: [Dialog.cancelButton({ label: trans.__('Keep') }), Dialog.warnButton({ label: trans.__('Stop') })]
        });
        if (!button.accept) {
          return;
        }
      }
      await model.send(request);
    };
    const openTerminal = async (pool: string, node: number): Promise<void> => {
      const reply = await model.ask({ kind: 'ask-shell', pool, node });
      if (typeof reply === 'string' || reply.kind !== 'shell') {
        model.notify({ text: typeof reply === 'string' ? reply : reply.kind, kind: 'error' });
        return;
      }
      await startTerminal(app, reply, trans.__('node %1 of %2', node, pool));
    };
    const menu = new Menu({ commands: app.commands });
    const actions: Actions = {
      openMenu: button => {
        const { left, bottom } = button.getBoundingClientRect();
        menu.open(left, bottom);
      },
      insertLoad: () => insertCell(tracker, LOAD),
      insertCell: () => insertCell(tracker, CELL),
      insertLine: line => insertCell(tracker, line),
      stopPool: pool => void stop(run('down', { pool: pool.name }), [pool]),
      stopAll: () => void stop(run('down', { every: true }), model.pools),
      insertRecovered: pool => insertCell(tracker, recovered(pool.name)),
      openLog: (pool, node) => {
        if (model.link) {
          openStartLog(app, model.link, pool, node, trans, labShell ? 'main' : 'down');
        }
      },
      openTerminal:
        labShell && app.serviceManager.terminals.isAvailable() ? (pool, node) => void openTerminal(pool, node) : null
    };

    const panel = new SkywardPanel(model, trans, actions);
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

    const hasNotebook = () => tracker.currentWidget !== null;
    app.commands.addCommand(COMMANDS.show, {
      label: trans.__('Show the Pools of This Notebook'),
      icon,
      execute: () => app.shell.activateById(panel.id)
    });
    app.commands.addCommand(COMMANDS.load, {
      label: trans.__('Insert %1', LOAD),
      isEnabled: hasNotebook,
      execute: actions.insertLoad
    });
    app.commands.addCommand(COMMANDS.cell, {
      label: trans.__('Insert a %1 Cell', '%%sky'),
      isEnabled: hasNotebook,
      execute: actions.insertCell
    });
    for (const command of Object.values(COMMANDS)) {
      palette?.addItem({ command, category: trans.__('Skyward') });
    }

    addCommands(app, palette, model, actions, () => app.shell.activateById(panel.id), trans);
    menu.addItem({ command: 'skyward:new-pool' });
    menu.addItem({ command: 'skyward:insert-help' });
    menu.addItem({ command: SETTINGS, args: { query: 'Skyward' } });
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: 'skyward:stop-all' });

    const item = new StatusItem(model, trans, () => app.shell.activateById(panel.id));
    statusBar?.registerStatusItem('skyward-panel:status', {
      item,
      align: 'left',
      rank: 900
    });
    if (registry) {
      void app.restored
        .then(() => registry.load(ID))
        .then(settings => {
          const read = () => {
            confirmStop = settings.get('confirmStop').composite !== false;
            item.setHidden(settings.get('statusBar').composite === false);
          };
          settings.changed.connect(read);
          read();
        })
        .catch(error => console.warn('skyward: could not load the settings', error));
    }
  }
};

export default plugin;
