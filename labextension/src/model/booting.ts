import { NodeRow, StartupFailureRow } from '../protocol';
import { duration } from './format';
import { Words } from './panel';

/** How far a node is in its phase: for how long, of how long that usually takes, and what part of it that is. */
export interface Progress {
  elapsed: string;
  usual: string;
  /** From 0 to 1; null where it is not known what is usual. */
  part: number | null;
  late: boolean;
}

/** How far a node is that boots; null for one that does not. What takes less than a second has no usual time. */
export function progress(node: NodeRow, now: number): Progress | null {
  if (node.phase_at === null) {
    return null;
  }
  const seconds = Math.max(0, now - node.phase_at);
  const usual = node.usual !== null && node.usual >= 1 ? node.usual : null;
  return {
    elapsed: duration(seconds),
    usual: usual === null ? '' : duration(Math.round(usual)),
    part: usual === null ? null : Math.min(1, seconds / usual),
    late: usual !== null && seconds > 1.5 * usual + 1
  };
}

/** What becomes of a node that did not come up: `Retrying in 12 s (2 of 3)`, `Gave up after 3 tries`. */
export function outlook(trouble: StartupFailureRow, now: number, trans: Words): string {
  if (trouble.gave_up) {
    const tries = Math.max(1, trouble.attempt - 1);
    return tries === 1 ? trans.__('Gave up after 1 try') : trans.__('Gave up after %1 tries', tries);
  }
  const which = trouble.attempts
    ? trans.__('%1 of %2', trouble.attempt, trouble.attempts)
    : trans.__('try %1', trouble.attempt);
  const left = trouble.retry_at === null ? 0 : Math.ceil(trouble.retry_at - now);
  return left > 0 ? trans.__('Retrying in %1 s (%2)', left, which) : trans.__('Trying again (%1)', which);
}
