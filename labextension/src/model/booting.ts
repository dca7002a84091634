import { NodeRow, StartupFailureRow } from '../protocol';
import { duration } from './format';
import { Translation } from './translation';

/** Progress of a node in its startup phase, compared with the usual duration of the phase. */
export interface Progress {
  elapsed: string;
  usual: string;
  /** From 0 to 1; null if the usual duration is unknown. */
  part: number | null;
  late: boolean;
}

/** Return the progress of a booting node; null for others. Usual durations below one second are ignored. */
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

/** Return the retry status of a node that failed to start: `Retrying in 12 s (2 of 3)`, `Gave up after 3 attempts`. */
export function retryStatus(failure: StartupFailureRow, now: number, trans: Translation): string {
  if (failure.gave_up) {
    const attempts = Math.max(1, failure.attempt - 1);
    return attempts === 1 ? trans.__('Gave up after 1 attempt') : trans.__('Gave up after %1 attempts', attempts);
  }
  const position = failure.attempts
    ? trans.__('%1 of %2', failure.attempt, failure.attempts)
    : trans.__('attempt %1', failure.attempt);
  const left = failure.retry_at === null ? 0 : Math.ceil(failure.retry_at - now);
  return left > 0 ? trans.__('Retrying in %1 s (%2)', left, position) : trans.__('Retrying (%1)', position);
}
