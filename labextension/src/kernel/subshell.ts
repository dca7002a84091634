/** Milliseconds that a subshell may take to start. */
const SUBSHELL_TIMEOUT = 3000;

/** A comm of JupyterLab 4.4 or newer, which can have its own subshell. */
export interface ISubshellComm {
  commsOverSubshells?: string;
  subshellStarted?: Promise<void>;
}

/** Wait until a comm has its subshell, regardless of the user's general settings for comms. */
export async function subshell(comm: ISubshellComm): Promise<void> {
  if (comm.subshellStarted === undefined) {
    return;
  }
  if (comm.commsOverSubshells === 'disabled') {
    await Promise.resolve(); // let the constructor finish, so that only one subshell is started
    comm.commsOverSubshells = 'perCommTarget';
  }
  const late = new Promise<void>(resolve => setTimeout(resolve, SUBSHELL_TIMEOUT));
  await Promise.race([comm.subshellStarted, late]).catch(() => undefined);
}
