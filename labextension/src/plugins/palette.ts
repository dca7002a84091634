import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { bounds } from '../model/equivalent';
import { nodesInOrder, tasksInOrder } from '../model/lists';
import { nodeState } from '../model/states';
import { Translation } from '../model/translation';
import { icon } from '../panel/icons';
import { NodeRow, PoolRow, TaskRow } from '../protocol';
import { INodeTerminals, INotebookPools, IPoolActions, ISidePanel, IStartLogs } from '../tokens';
import { HELP, LOAD } from './actions';
import { COMMANDS } from './commands';

/** One of the possible arguments of a command. */
interface Choice<T> {
  label: string;
  value: T;
}

/** Let the user choose; null if the dialog was cancelled, or there is nothing to choose from. */
async function choose<T>(question: string, choices: Choice<T>[]): Promise<T | null> {
  const items = choices.map(each => each.label);
  const { button, value } = await InputDialog.getItem({ title: question, items });
  return button.accept ? (choices[items.indexOf(value ?? '')]?.value ?? null) : null;
}

/** Add the commands that have no arguments. */
function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  tracker: INotebookTracker,
  model: INotebookPools,
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
  commands.addCommand(COMMANDS.newPool, {
    label: trans.__('New Pool…'),
    isEnabled: () => model.link?.contact === 'live',
    execute: () => {
      sidePanel.show();
      model.isFormOpen = true;
    }
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
  commands.addCommand(COMMANDS.help, {
    label: trans.__('Insert %1', HELP),
    isEnabled: hasNotebook,
    execute: () => actions.insertHelp()
  });
  commands.addCommand(COMMANDS.stopAll, {
    label: trans.__('Stop All Pools of This Notebook'),
    isEnabled: () => model.pools.length > 0,
    execute: () => actions.stopAll()
  });
  for (const command of Object.values(COMMANDS)) {
    palette?.addItem({ command, category: trans.__('Skyward') });
  }
}

/** Add a command for each control of the panel; it asks for its argument. */
function addQuestions(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  model: INotebookPools,
  actions: IPoolActions,
  logs: IStartLogs,
  terminals: INodeTerminals,
  trans: Translation
): void {
  const nodes = (fits: (node: NodeRow) => boolean): Choice<NodeRow>[] =>
    nodesInOrder([...(model.link?.store.rows.nodes.values() ?? [])])
      .filter(fits)
      .map(node => ({
        label: trans.__('node %1 of %2 (%3)', node.rank, node.pool, nodeState(node, trans).word),
        value: node
      }));
  const pools = (): Choice<PoolRow>[] => model.pools.map(pool => ({ label: pool.name, value: pool }));
  const tasks = (): TaskRow[] =>
    tasksInOrder([...(model.link?.store.rows.tasks.values() ?? [])]).filter(task =>
      ['queued', 'running'].includes(task.state)
    );
  const orphans = () => model.orphans.map(each => ({ label: each.name, value: each }));

  function add<T>(
    name: string,
    label: string,
    question: string,
    choices: () => Choice<T>[],
    act: (chosen: T) => unknown
  ): void {
    const command = `skyward:${name}`;
    app.commands.addCommand(command, {
      label,
      isEnabled: () => choices().length > 0,
      execute: async () => {
        const chosen = await choose(question, choices());
        if (chosen !== null) {
          await act(chosen);
        }
      }
    });
    palette?.addItem({ command, category: trans.__('Skyward') });
  }

  add('scale-pool', trans.__('Scale a Pool…'), trans.__('Scale which pool?'), pools, async pool => {
    const { value } = await InputDialog.getText({
      title: trans.__('Nodes of %1: a number, or MIN:MAX', pool.name),
      text: bounds(pool.min, pool.max)
    });
    const match = /^(\d+)(?::(\d+))?$/.exec(value?.trim() ?? '');
    if (match) {
      const min = Number(match[1]);
      await model.send({ kind: 'scale', pool: pool.name, min, max: Number(match[2] ?? min) });
    } else if (value) {
      model.notify({
        text: trans.__('Invalid number of nodes %1: use N or MIN:MAX, such as 4 or 2:16.', value),
        kind: 'error'
      });
    }
  });
  add('stop-pool', trans.__('Stop a Pool…'), trans.__('Stop which pool?'), pools, pool => actions.stopPool(pool));
  add(
    'drain-node',
    trans.__('Drain a Node…'),
    trans.__('Drain which node?'),
    () => nodes(node => node.state === 'active'),
    node => model.send({ kind: 'drain', pool: node.pool, node: node.rank })
  );
  add(
    'open-terminal',
    trans.__('Open a Terminal on a Node…'),
    trans.__('Open a terminal on which node?'),
    () => (terminals.isAvailable ? nodes(node => node.terminal_access !== '') : []),
    node => terminals.open(node.pool, node.rank)
  );
  add(
    'show-log',
    trans.__('Show the Startup Log of a Node…'),
    trans.__('Show the startup log of which node?'),
    () => nodes(node => node.state !== 'stopping'),
    node => logs.open(node.pool, node.rank)
  );
  add(
    'cancel-task',
    trans.__('Stop a Task…'),
    trans.__('Stop which task?'),
    () => tasks().map(task => ({ label: `${task.pool} ${task.number}: ${task.title}`, value: task })),
    task => model.send({ kind: 'cancel-task', pool: task.pool, task: task.number })
  );
  add(
    'cancel-cell',
    trans.__('Stop All Tasks of a Cell…'),
    trans.__('Stop the tasks of which cell?'),
    () => {
      const cells = new Map(tasks().flatMap(task => (task.cell === null ? [] : [[task.cell, task.code] as const])));
      return [...cells].map(([cell, code]) => ({ label: `[${cell}] ${code}`, value: cell }));
    },
    cell => model.send({ kind: 'cancel-cell', cell })
  );
  add('attach', trans.__('Reattach a Pool…'), trans.__('Reattach which pool?'), orphans, orphan =>
    model.send({ kind: 'attach', pool: orphan.name })
  );
  add('reap', trans.__('Stop an Orphaned Pool…'), trans.__('Stop which pool?'), orphans, orphan =>
    model.send({ kind: 'reap', pool: orphan.id })
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
    addCommands(app, commandPalette, tracker, model, actions, sidePanel, trans);
    addQuestions(app, commandPalette, model, actions, logs, terminals, trans);
  }
};
