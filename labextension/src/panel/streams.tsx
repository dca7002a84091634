import { closeIcon, runIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IconButton } from '../components/button';
import { useNow } from '../components/hooks';
import { Section } from '../components/section';
import { whole } from '../model/format';
import { outputLines } from '../model/lists';
import { Translation } from '../model/translation';
import { Rate } from '../model/rate';
import { OutputRow, TaskRow } from '../protocol';
import { Icon, pauseIcon } from './icons';
import { Ask } from './props';

/** Source of the output shown: a node, or a task. */
export interface Source {
  node: number | null;
  task: number | null;
}

/** Minimum milliseconds between two requests for the output of a source. */
const PAUSE = 500;

function isOf(source: Source, row: OutputRow): boolean {
  return source.task === null ? row.node === source.node : row.task === source.task;
}

/**
 * Return the latest output of a source. The published rows of the pool may have dropped parts of it, so they only tell
 * when to request it.
 */
function usePrinted(pool: string, source: Source | null, rows: readonly OutputRow[], ask: Ask): OutputRow[] | null {
  const [printed, setPrinted] = React.useState<OutputRow[] | null>(null);
  const latest = source ? rows.findLast(row => isOf(source, row))?.number : 0;
  const askedAt = React.useRef(0);
  React.useEffect(() => setPrinted(null), [pool, source]);
  React.useEffect(() => {
    if (!source) {
      return;
    }
    let over = false;
    const wait = Math.max(0, askedAt.current + PAUSE - Date.now());
    const fetch = async () => {
      askedAt.current = Date.now();
      const reply = await ask({ kind: 'ask-output', pool, ...source });
      if (!over && typeof reply !== 'string' && reply.kind === 'printed') {
        setPrinted(reply.rows);
      }
    };
    const timer = window.setTimeout(() => void fetch(), wait);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `ask` is another function at each render
  }, [pool, source, latest]);
  return printed;
}

/** The latest lines of output, of all nodes or of one source; can be paused. */
export function Streams(props: {
  pool: string;
  rows: OutputRow[];
  tasks: TaskRow[];
  source: Source | null;
  onSource: (source: Source | null) => void;
  ask: Ask;
  trans: Translation;
}): JSX.Element {
  const { source, trans } = props;
  const printed = usePrinted(props.pool, source, props.rows, props.ask);
  const [held, setHeld] = React.useState<OutputRow[] | null>(null);
  React.useEffect(() => setHeld(null), [source]);
  const rows = source ? (printed ?? []) : props.rows;
  const lines = outputLines(held ?? rows);
  const yielding = props.tasks.filter(task => task.yielded && task.state === 'running');
  const now = useNow(yielding.length > 0);
  const rates = React.useRef(new Map<number, Rate>());
  const yielded = yielding.map(task => {
    const rate = rates.current.get(task.number) ?? new Rate();
    rates.current.set(task.number, rate);
    const each = rate.at(now, task.yielded);
    const text = trans.__('[%1] yields: %2', task.cell ?? ' ', whole(task.yielded));
    return each === null ? text : `${text} · ${trans.__('%1/s', whole(Math.round(each)))}`;
  });
  return (
    <Section
      name="streams"
      title={trans.__('Streams')}
      actions={
        <IconButton
          icon={<Icon icon={held ? runIcon : pauseIcon} />}
          title={held ? trans.__('Resume') : trans.__('Pause')}
          pressed={held !== null}
          onClick={() => setHeld(held ? null : rows)}
        />
      }
    >
      {yielded.map((text, index) => (
        <p key={yielding[index].number} className="skyward-Yields">
          {text}
        </p>
      ))}
      {source && (
        <p className="skyward-Source">
          <span>
            {source.task === null ? trans.__('Only node %1', source.node ?? '') : trans.__('Only task %1', source.task)}
          </span>
          <IconButton
            icon={<Icon icon={closeIcon} />}
            title={trans.__('Show all output')}
            onClick={() => props.onSource(null)}
          />
        </p>
      )}
      {lines.length === 0 ? (
        <p className="skyward-Empty">{trans.__('No output yet.')}</p>
      ) : (
        <Lines lines={lines} trans={trans} />
      )}
    </Section>
  );
}

/** Lines of output, scrolled to the last one unless the user has scrolled away from it. */
function Lines(props: { lines: ReturnType<typeof outputLines>; trans: Translation }): JSX.Element {
  const box = React.useRef<HTMLPreElement>(null);
  const atEnd = React.useRef(true);
  const scrolledTo = React.useRef(0);
  React.useLayoutEffect(() => {
    if (box.current && atEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
      scrolledTo.current = box.current.scrollTop;
    }
  });
  return (
    <pre
      ref={box}
      className="skyward-Output"
      tabIndex={0}
      aria-label={props.trans.__('Output of the nodes')}
      onScroll={({ currentTarget: at }) => {
        // After our own scrolling, there may be more lines by the time of this event.
        const near = at.scrollHeight - at.scrollTop - at.clientHeight < 24;
        atEnd.current = near || (atEnd.current && at.scrollTop === scrolledTo.current);
      }}
    >
      {props.lines.map(line => (
        <div key={line.key} className={`skyward-mod-${line.stream}`}>
          <span className="skyward-Output-from">{line.from}</span>
          {line.text}
        </div>
      ))}
    </pre>
  );
}
