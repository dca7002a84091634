import { Command } from '../protocol';

/** A command without its id, which the link adds. */
export type CommandRequest = Command extends infer C ? (C extends Command ? Omit<C, 'id'> : never) : never;

/** Return the `%sky` line that is equivalent to a command of the panel; empty if there is none. */
export function equivalent(request: CommandRequest): string {
  switch (request.kind) {
    case 'cancel-task':
      return `%sky cancel --task ${request.task} --pool ${word(request.pool)}`;
    case 'cancel-cell':
      return `%sky cancel --cell ${request.cell}`;
    case 'scale':
      return `%sky scale ${word(request.pool)} ${bounds(request.min, request.max)}`;
    case 'drain':
      return `%sky drain ${word(request.pool)} ${request.node}`;
    case 'stop-pool':
      return `%sky down ${word(request.pool)}`;
    case 'stop-all':
      return '%sky down --all';
    case 'new-pool':
      return ['%sky up', word(request.name), options(request.options)].filter(part => part).join(' ');
    case 'attach':
      return `%sky attach ${word(request.pool)}`;
    case 'reap':
      return `%sky reap ${word(request.pool)}`;
    case 'ask-start-log':
      return `%sky logs ${word(request.pool)} ${request.node}`;
    case 'ask-price':
    case 'ask-shell':
    case 'ask-output':
    case 'refresh':
      return '';
  }
}

/** Format the options of a pool for a line `%sky up NAME OPTIONS`. */
export function options(given: { [flag: string]: string }): string {
  return Object.entries(given)
    .filter(([, text]) => text.trim())
    .map(([flag, text]) => `${flag} ${word(text.trim())}`)
    .join(' ');
}

/** Format bounds: `4`, or `2:16`. */
export function bounds(min: number, max: number): string {
  return min === max ? `${min}` : `${min}:${max}`;
}

/** Quote a text as one word of a `%sky` line, which is split by the rules of a POSIX shell. */
function word(text: string): string {
  return /^[\w.:,=@%+/*-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}
