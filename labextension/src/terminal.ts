import { JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';
import { Terminal } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';

import { Shell } from './protocol';

const CREATE = 'terminal:create-new';

/** Open a JupyterLab terminal and run the line of `shell` in it, or go to its folder; `title` is the tab's caption. */
export async function startTerminal(app: JupyterFrontEnd, shell: Shell, title: string): Promise<void> {
  const main = (await app.commands.execute(CREATE)) as
    MainAreaWidget<Widget & { session: Terminal.ITerminalConnection }> | undefined;
  if (!main) {
    return;
  }
  const { session } = main.content;
  main.title.caption = title;
  const line = shell.line || `cd ${quoted(shell.folder)}`;
  const enter = () => session.send({ type: 'stdin', content: [`${line}\r`] });
  // Input that is sent before the first output of the shell may be lost.
  const onMessage = (_: unknown, message: Terminal.IMessage) => {
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
