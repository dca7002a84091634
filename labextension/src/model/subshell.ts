/** Milliseconds that a subshell may take to start. */
const SUBSHELL_PATIENCE = 3000;

/** The comm of JupyterLab 4.4 and newer, which can have a subshell of its own. */
interface ISubshellComm {
  commsOverSubshells?: string;
  subshellStarted?: Promise<void>;
}

/** Wait until a comm has its subshell, whatever the user's settings say of comms in general. */
export async function subshell(comm: object): Promise<void> {
  const own = comm as ISubshellComm;
  if (own.subshellStarted === undefined) {
    return;
  }
  if (own.commsOverSubshells === 'disabled') {
    await Promise.resolve(); // what the constructor began is over, so that one subshell is started and not two
    own.commsOverSubshells = 'perCommTarget';
  }
  const late = new Promise<void>(resolve =>
    setTimeout(resolve, SUBSHELL_PATIENCE)
  );
  await Promise.race([own.subshellStarted, late]).catch(() => undefined);
}
