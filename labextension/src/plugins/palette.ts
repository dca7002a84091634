import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { bounds, equivalent } from '../model/equivalent';
import { isDrainable, nodesInOrder, tasksInOrder } from '../model/lists';
import { nodeState } from '../model/states';
import { Translation } from '../model/translation';
import { icon } from '../panel/icons';
import { Chosen, NodeRow, PALETTE, PaletteEntry, PoolRow, TaskRow } from '../protocol';
import { INodeTerminals, INotebookPools, IPoolActions, ISidePanel, IStartLogs } from '../tokens';
import { LOAD } from './actions';
import { COMMANDS } from './commands';

/** One of the choices of a dialog, with the arguments of commands that it stands for. */
interface Option {
  label: string;
  arguments: Partial<Chosen>;
  pool?: PoolRow;
  node?: NodeRow;
}

const NOTHING: Chosen = { pool: '', pools: [], nodes: '', node: 0, task: 0, cell: 0 };

/** Let the user choose; null if the dialog was cancelled, or there is nothing to choose from. */
async function choose(question: string, options: Option[]): Promise<Option | null> {
  const items = options.map(each => each.label);
  const { button, value } = await InputDialog.getItem({ title: question, items });
  return button.accept ? (options[items.indexOf(value ?? '')] ?? null) : null;
}

/** Add the commands that are not in the registry, and have no arguments. */
function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  tracker: INotebookTracker,
  actions: IPoolActions,
  sidePanel: ISidePanel,
  trans: Translation
): void {
  const hasNotebook = () => tracker.currentWidget !== null;
  const { commands } = app;
  commands.addCommand(COMMANDS.show, {
    label: trans.__('Show the Pools of This Notebook'),
    icon,
    execute: () => sidePanel.show()
  });
  commands.addCommand(COMMANDS.load, {
    label: trans.__('Insert %1', LOAD),
    isEnabled: hasNotebook,
    execute: () => actions.insertLoad()
  });
  commands.addCommand(COMMANDS.cell, {
    label: trans.__('Insert a %1 Cell', '%%sky'),
    isEnabled: hasNotebook,
    execute: () => actions.insertCell()
  });
  for (const command of [COMMANDS.show, COMMANDS.load, COMMANDS.cell]) {
    palette?.addItem({ command, category: trans.__('Skyward') });
  }
}

/** Add the commands of the registry, and terminals; each asks for its arguments. */
function addRegistered(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  model: INotebookPools,
  actions: IPoolActions,
  logs: IStartLogs,
  terminals: INodeTerminals,
  sidePanel: ISidePanel,
  trans: Translation
): void {
  const nodes = (fits: (node: NodeRow) => boolean): Option[] =>
    nodesInOrder([...(model.link?.store.rows.nodes.values() ?? [])])
      .filter(fits)
      .map(node => ({
        label: trans.__('node %1 of %2 (%3)', node.rank, node.pool, nodeState(node, trans).word),
        arguments: { pool: node.pool, node: node.rank },
        node
      }));
  const tasks = (): TaskRow[] =>
    tasksInOrder([...(model.link?.store.rows.tasks.values() ?? [])]).filter(task =>
      ['queued', 'running'].includes(task.state)
    );

  /** Return what the user can choose from for an entry. */
  const options = (choice: PaletteEntry['choice']): Option[] => {
    switch (choice) {
      case '':
        return [];
      case 'pool':
        return model.pools.map(pool => ({ label: pool.name, arguments: { pool: pool.name }, pool }));
      case 'node':
        return nodes(node => node.state !== 'stopping');
      case 'drainable node':
        return nodes(isDrainable);
      case 'task':
        return tasks().map(task => ({
          label: `${task.pool} ${task.number}: ${task.title}`,
          arguments: { pool: task.pool, task: task.number }
        }));
      case 'cell': {
        const cells = new Map(tasks().flatMap(task => (task.cell === null ? [] : [[task.cell, task.code] as const])));
        return [...cells].map(([cell, code]) => ({ label: `[${cell}] ${code}`, arguments: { cell } }));
      }
      case 'orphan':
        return model.orphans.map(each => ({ label: each.name, arguments: { pool: each.name, pools: [each.id] } }));
    }
  };

  /** Ask for the number of nodes of a pool; null if the dialog was cancelled. */
  const askForNodes = async (pool: PoolRow): Promise<string | null> => {
    const { value } = await InputDialog.getText({
      title: trans.__('Nodes of %1: a number, or MIN:MAX', pool.name),
      text: bounds(pool.min, pool.max)
    });
    return value?.trim() || null;
  };

  /** Run the command of an entry, or insert its line. */
  const runEntry = async (entry: PaletteEntry, option: Option | null): Promise<void> => {
    const chosen = { ...NOTHING, ...option?.arguments };
    if (entry.arguments.includes('nodes') && option?.pool) {
      const wanted = await askForNodes(option.pool);
      if (wanted === null) {
        return;
      }
      chosen.nodes = wanted;
    }
    if (entry.line) {
      actions.insertLine(equivalent(entry.line(chosen)));
    } else if (entry.run) {
      await model.send(entry.run(chosen));
    }
  };

  /** Entries for which the panel has a form, a dialog or a tab of its own. */
  const own: { [name: string]: (chosen: Option | null) => unknown } = {
    'new-pool': () => {
      sidePanel.show();
      model.isFormOpen = true;
    },
    'stop-pool': chosen => chosen?.pool && actions.stopPool(chosen.pool),
    'stop-all': () => actions.stopAll(),
    'show-log': chosen => chosen?.node && logs.open(chosen.node.pool, chosen.node.rank)
  };

  const isEnabled = (entry: PaletteEntry): boolean => {
    if (entry.line && !model.notebook) {
      return false;
    }
    switch (entry.name) {
      case 'new-pool':
        return model.link?.contact === 'live';
      case 'stop-all':
        return model.pools.length > 0;
      default:
        return entry.choice === '' || options(entry.choice).length > 0;
    }
  };

  const add = (name: string, label: string, enabled: () => boolean, execute: () => Promise<void>) => {
    const command = `skyward:${name}`;
    app.commands.addCommand(command, { label, isEnabled: enabled, execute });
    palette?.addItem({ command, category: trans.__('Skyward') });
  };

  for (const entry of PALETTE) {
    add(
      entry.name,
      trans.__(entry.label),
      () => isEnabled(entry),
      async () => {
        const chosen = entry.choice && (await choose(trans.__(entry.question), options(entry.choice)));
        if (chosen !== null) {
          await Promise.resolve((own[entry.name] ?? (each => runEntry(entry, each)))(chosen || null));
        }
      }
    );
  }
  const reachable = () => (terminals.isAvailable ? nodes(node => node.terminal_access !== '') : []);
  add(
    'open-terminal',
    trans.__('Open a Terminal on a Node…'),
    () => reachable().length > 0,
    async () => {
      const chosen = await choose(trans.__('Open a terminal on which node?'), reachable());
      if (chosen?.node) {
        terminals.open(chosen.node.pool, chosen.node.rank);
      }
    }
  );
}

/** The commands of the palette and of the panel's menu. */
export const palette: JupyterFrontEndPlugin<void> = {
  id: 'skyward-panel:palette',
  description: 'Commands for pools, nodes and tasks.',
  autoStart: true,
  requires: [INotebookTracker, INotebookPools, IPoolActions, IStartLogs, INodeTerminals, ISidePanel],
  optional: [ITranslator, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    model: INotebookPools,
    actions: IPoolActions,
    logs: IStartLogs,
    terminals: INodeTerminals,
    sidePanel: ISidePanel,
    translator: ITranslator | null,
    commandPalette: ICommandPalette | null
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    addCommands(app, commandPalette, tracker, actions, sidePanel, trans);
    addRegistered(app, commandPalette, model, actions, logs, terminals, sidePanel, trans);
  }
};
