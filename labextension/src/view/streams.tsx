import { closeIcon, runIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { pauseIcon } from '../icon';
import { Wish } from '../model/equivalent';
import { Reply } from '../model/link';
import { whole } from '../model/format';
import { outputLines } from '../model/lists';
import { Words } from '../model/panel';
import { Rate } from '../model/rate';
import { OutputRow, TaskRow } from '../protocol';
import { Section, SignButton, useNow } from './parts';

/** Whose output is shown: that of a node, or of a task. */
export interface Source {
  node: number | null;
  task: number | null;
}

/** Milliseconds between two looks at what a source has written. */
const PAUSE = 500;

function isOf(source: Source, row: OutputRow): boolean {
  return source.task === null ? row.node === source.node : row.task === source.task;
}

/**
 * The last that a source has written. What arrives of the pool as a whole may have lost it among the rest, so that only
 * says when to ask.
 */
function usePrinted(
  pool: string,
  source: Source | null,
  rows: readonly OutputRow[],
  ask: (wish: Wish) => Promise<Reply | string>
): OutputRow[] | null {
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
    const timer = window.setTimeout(async () => {
      askedAt.current = Date.now();
      const reply = await ask({ kind: 'ask-output', pool, ...source });
      if (!over && typeof reply !== 'string' && reply.kind === 'printed') {
        setPrinted(reply.rows);
      }
    }, wait);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [pool, source, latest]);
  return printed;
}

/** What the nodes print: the latest lines, of all or of one source, which can be made to stand still. */
export function Streams(props: {
  pool: string;
  rows: OutputRow[];
  tasks: TaskRow[];
  source: Source | null;
  onSource: (source: Source | null) => void;
  ask: (wish: Wish) => Promise<Reply | string>;
  trans: Words;
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
    const told = trans.__('[%1] yields: %2', task.cell ?? ' ', whole(task.yielded));
    return each === null ? told : `${told} · ${trans.__('%1/s', whole(Math.round(each)))}`;
  });
  return (
    <Section
      name="streams"
      title={trans.__('Streams')}
      actions={
        <SignButton
          icon={held ? runIcon : pauseIcon}
          title={held ? trans.__('Go on') : trans.__('Hold still')}
          pressed={held !== null}
          onClick={() => setHeld(held ? null : rows)}
        />
      }
    >
      {yielded.map((told, index) => (
        <p key={yielding[index].number} className="skyward-Yields">
          {told}
        </p>
      ))}
      {source && (
        <p className="skyward-Source">
          <span>
            {source.task === null
              ? trans.__('Only node %1', source.node ?? '')
              : trans.__('Only task %1', source.task)}
          </span>
          <SignButton icon={closeIcon} title={trans.__('Show the output of all')} onClick={() => props.onSource(null)} />
        </p>
      )}
      {lines.length === 0 ? (
        <p className="skyward-Empty">{trans.__('Nothing was printed yet.')}</p>
      ) : (
        <Lines lines={lines} trans={trans} />
      )}
    </Section>
  );
}

/** Lines, of which the last is in sight unless somebody has scrolled away from it. */
function Lines(props: {
  lines: ReturnType<typeof outputLines>;
  trans: Words;
}): JSX.Element {
  const box = React.useRef<HTMLPreElement>(null);
  const atEnd = React.useRef(true);
  const put = React.useRef(0);
  React.useLayoutEffect(() => {
    if (box.current && atEnd.current) {
      box.current.scrollTop = box.current.scrollHeight;
      put.current = box.current.scrollTop;
    }
  });
  return (
    <pre
      ref={box}
      className="skyward-Output"
      tabIndex={0}
      aria-label={props.trans.__('Output of the nodes')}
      onScroll={({ currentTarget: at }) => {
        // Where we have put it ourselves, there may be more lines by the time that this is said.
        const near = at.scrollHeight - at.scrollTop - at.clientHeight < 24;
        atEnd.current = near || (atEnd.current && at.scrollTop === put.current);
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
