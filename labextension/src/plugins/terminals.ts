import { ILabShell, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Terminal } from '@jupyterlab/services';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import { ShellReply } from '../protocol';
import { INodeTerminals, INotebookPools } from '../tokens';

const CREATE = 'terminal:create-new';

/** Result of JupyterLab's command: `ITerminal` of `@jupyterlab/terminal`, which is not among our dependencies. */
type TerminalTab = MainAreaWidget<Widget & { session: Terminal.ITerminalConnection }>;

/** Open a JupyterLab terminal and run the line of `shell` in it, or go to its folder; `title` is the tab's caption. */
async function startTerminal(app: JupyterFrontEnd, shell: ShellReply, title: string): Promise<void> {
  // eslint-disable-next-line @typescript-eslint/consistent-type-assertions -- commands return `any`
  const main = (await app.commands.execute(CREATE)) as TerminalTab | undefined;
  if (!main) {
    return;
  }
  const { session } = main.content;
  main.title.caption = title;
  const line = shell.line || `cd ${quoted(shell.folder)}`;
  const enter = () => session.send({ type: 'stdin', content: [`${line}\r`] });
  // Input that is sent before the first output of the shell may be lost.
  const onMessage = (_: Terminal.ITerminalConnection, message: Terminal.IMessage) => {
    if (message.type === 'stdout') {
      session.messageReceived.disconnect(onMessage);
      enter();
    }
  };
  session.messageReceived.connect(onMessage);
}

function quoted(path: string): string {
  return `'${path.replace(/'/g, "'\\''")}'`;
}

/** Opens terminals on nodes. */
export const terminals: JupyterFrontEndPlugin<INodeTerminals> = {
  id: 'skyward-panel:terminals',
  description: 'Opens terminals on nodes.',
  autoStart: true,
  requires: [INotebookPools],
  optional: [ITranslator, ILabShell],
  provides: INodeTerminals,
  activate: (
    app: JupyterFrontEnd,
    model: INotebookPools,
    translator: ITranslator | null,
    labShell: ILabShell | null // null in Notebook 7: its terminals are separate pages
  ) => {
    const trans = (translator ?? nullTranslator).load('skyward');
    const open = async (pool: string, node: number): Promise<void> => {
      const reply = await model.ask({ kind: 'ask-shell', pool, node });
      if (typeof reply === 'string' || reply.kind !== 'shell') {
        model.notify({ text: typeof reply === 'string' ? reply : reply.kind, kind: 'error' });
        return;
      }
      await startTerminal(app, reply, trans.__('node %1 of %2', node, pool));
    };
    return {
      isAvailable: labShell !== null && app.serviceManager.terminals.isAvailable(),
      open: (pool, node) => void open(pool, node)
    };
  }
};
