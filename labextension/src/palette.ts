import { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';

import { CommandLine, NodeRow, PALETTE, PaletteEntry, PoolRow, TaskRow } from './protocol';
import { bounds, equivalent, RunRequest } from './model/equivalent';
import { nodesInOrder, tasksInOrder } from './model/lists';
import { PanelModel, Translation } from './model/panel';
import { nodeState } from './model/states';
import { Actions } from './view/panel';

/** One of the choices of a dialog, with the arguments of commands that it stands for. */
interface Option {
  label: string;
  arguments: { [name: string]: unknown };
  pool?: PoolRow;
  node?: NodeRow;
}

/** Let the user choose; null if the dialog was cancelled, or there is nothing to choose from. */
async function choose(question: string, options: Option[]): Promise<Option | null> {
  const items = options.map(each => each.label);
  const { button, value } = await InputDialog.getItem({ title: question, items });
  return button.accept ? (options[items.indexOf(value ?? '')] ?? null) : null;
}

/** Add the commands of the registry to the command palette; each asks for its arguments. */
export function addCommands(
  app: JupyterFrontEnd,
  palette: ICommandPalette | null,
  model: PanelModel,
  actions: Actions,
  show: () => void,
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
      case 'active node':
        return nodes(node => node.state === 'active');
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

  /** Run the command of an entry, or insert its line. The registry lists the arguments, which a choice has. */
  const runEntry = async (entry: PaletteEntry, chosen: Option | null): Promise<void> => {
    const given = { ...chosen?.arguments };
    if (entry.arguments.includes('nodes') && chosen?.pool) {
      const wanted = await askForNodes(chosen.pool);
      if (wanted === null) {
        return;
      }
      given.nodes = wanted;
    }
    const values = Object.fromEntries(entry.arguments.map(name => [name, given[name]]));
    if (entry.isLine) {
      actions.insertLine(equivalent({ command: entry.command, arguments: values } as CommandLine));
    } else {
      await model.send({ kind: 'run', command: entry.command, arguments: values } as RunRequest);
    }
  };

  /** Entries for which the panel has a form, a dialog or a tab of its own. */
  const own: { [name: string]: (chosen: Option | null) => unknown } = {
    'new-pool': () => {
      show();
      model.isFormOpen = true;
    },
    'stop-pool': chosen => chosen?.pool && actions.stopPool(chosen.pool),
    'stop-all': () => actions.stopAll(),
    'show-log': chosen => chosen?.node && actions.openLog(chosen.node.pool, chosen.node.rank)
  };

  const isEnabled = (entry: PaletteEntry): boolean => {
    if (entry.isLine && !model.notebook) {
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
  const terminals = () => (actions.openTerminal ? nodes(node => node.terminal_access !== '') : []);
  add(
    'open-terminal',
    trans.__('Open a Terminal on a Node…'),
    () => terminals().length > 0,
    async () => {
      const chosen = await choose(trans.__('Open a terminal on which node?'), terminals());
      if (chosen?.node) {
        actions.openTerminal?.(chosen.node.pool, chosen.node.rank);
      }
    }
  );
}
