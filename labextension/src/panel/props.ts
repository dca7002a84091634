import { Reply } from '../kernel/link';
import { CommandRequest } from '../model/equivalent';
import { RunRequest } from '../protocol';
import { Translation } from '../model/translation';

/** Properties that are common to the parts of the panel. */
export interface PartProps {
  trans: Translation;
  /** Send a command; true if it was executed. */
  send: (request: RunRequest) => Promise<boolean>;
}

/** Sends a query; returns its reply, or the reason why there is none. */
export type Ask = (request: CommandRequest) => Promise<Reply | string>;
