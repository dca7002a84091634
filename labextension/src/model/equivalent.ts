import { CommandLine, COMMAND_WORDS, Request, RunRequest } from '../protocol';

type WithoutId<R> = R extends unknown ? Omit<R, 'id'> : never;

/** A request without its id, which the link adds. */
export type CommandRequest = WithoutId<Request>;

/** Return the request that runs a command with these arguments. */
export function run<C extends RunRequest['command']>(
  command: C,
  args: Extract<RunRequest, { command: C }>['arguments']
) {
  return { kind: 'run', command, arguments: args } as const;
}

/** Return the `%sky` line of a command. */
export function equivalent(line: CommandLine): string {
  const { words, flags } = COMMAND_WORDS[line.command];
  const given: { [name: string]: Value | undefined } = line.arguments;
  const positional = words.map(name => texts(given[name]).map(word).join(' '));
  const flagged = Object.entries(flags)
    .filter(([name]) => given[name] !== undefined && !words.includes(name))
    .map(([name, flag]) => [flag, ...texts(given[name]).map(word)].join(' '));
  const collected = 'options' in line.arguments ? options(line.arguments.options) : '';
  return ['%sky', line.command, ...positional, ...flagged, collected].filter(part => part).join(' ');
}

type Value = string | number | true | string[] | Options;

/** Return the words of a value; none for a flag, and for options. */
function texts(value: Value | undefined): string[] {
  if (typeof value === 'string' || typeof value === 'number') {
    return [`${value}`];
  }
  return Array.isArray(value) ? value : [];
}

/** Texts of the options of a new pool, by flag. */
export type Options = { [flag: string]: string };

/** Format the options of a pool for a line `%sky up NAME OPTIONS`. */
export function options(given: Options): string {
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
