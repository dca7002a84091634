import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { KernelLink } from '../kernel/link';
import { equivalent } from '../model/equivalent';
import { icon } from '../panel/icons';
import { StartLog } from '../panel/startlog';
import { INotebookPools, IStartLogs } from '../tokens';

/** Shows the startup logs of nodes in tabs. A tab is reused while it is open. */
export const startLogs: JupyterFrontEndPlugin<IStartLogs> = {
  id: 'skyward-panel:start-logs',
  description: 'Shows the startup logs of nodes in tabs.',
  autoStart: true,
  requires: [INotebookPools],
  optional: [ITranslator, ILabShell],
  provides: IStartLogs,
  activate: (
    app: JupyterFrontEnd,
    model: INotebookPools,
    translator: ITranslator | null,
    labShell: ILabShell | null
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    // The main area of Notebook 7 has room for the notebook only.
    const area = labShell ? 'main' : 'down';
    const tabs = new Map<string, StartLog>();
    const open = (link: KernelLink, pool: string, node: number) => {
      const id = `skyward-log-${link.kernel.id}-${pool}-${node}`;
      const known = tabs.get(id);
      if (known) {
        known.refresh();
      } else {
        const content = new StartLog(link, pool, node, trans);
        const main = new MainAreaWidget({ content });
        main.id = id;
        main.title.label = trans.__('node %1 of %2', node, pool);
        main.title.caption = equivalent({ command: 'logs', arguments: { pool, node } });
        main.title.icon = labShell ? icon : undefined;
        tabs.set(id, content);
        content.disposed.connect(() => tabs.delete(id));
        app.shell.add(main, area);
      }
      app.shell.activateById(id);
    };
    return { open: (pool, node) => model.link && open(model.link, pool, node) };
  }
};
