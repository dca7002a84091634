import { Command } from '../protocol';

/** A command without the id that a link gives it. */
export type Wish = Command extends infer C
  ? C extends Command
    ? Omit<C, 'id'>
    : never
  : never;

/** The line of `%sky` that does what a command of the panel does; empty where none is needed. */
export function equivalent(wish: Wish): string {
  switch (wish.kind) {
    case 'cancel-task':
      return `%sky cancel --task ${wish.task} --pool ${word(wish.pool)}`;
    case 'cancel-cell':
      return `%sky cancel --cell ${wish.cell}`;
    case 'scale':
      return `%sky scale ${word(wish.pool)} ${bounds(wish.min, wish.max)}`;
    case 'drain':
      return `%sky drain ${word(wish.pool)} ${wish.node}`;
    case 'stop-pool':
      return `%sky down ${word(wish.pool)}`;
    case 'stop-all':
      return '%sky down --all';
    case 'new-pool':
      return ['%sky up', word(wish.name), options(wish.options)]
        .filter(part => part)
        .join(' ');
    case 'attach':
      return `%sky attach ${word(wish.pool)}`;
    case 'reap':
      return `%sky reap ${word(wish.pool)}`;
    case 'ask-start-log':
      return `%sky logs ${word(wish.pool)} ${wish.node}`;
    case 'ask-price':
    case 'ask-shell':
    case 'ask-output':
    case 'refresh':
      return '';
  }
}

/** The options of a pool as they stand behind `%sky up NAME`. */
export function options(given: { [flag: string]: string }): string {
  return Object.entries(given)
    .filter(([, text]) => text.trim())
    .map(([flag, text]) => `${flag} ${word(text.trim())}`)
    .join(' ');
}

/** `4`, or `2:16`. */
export function bounds(min: number, max: number): string {
  return min === max ? `${min}` : `${min}:${max}`;
}

/** A text as one word of a line of `%sky`, which is read as a shell reads it. */
function word(text: string): string {
  return /^[\w.:,=@%+/*-]+$/.test(text)
    ? text
    : `'${text.replace(/'/g, "'\\''")}'`;
}
