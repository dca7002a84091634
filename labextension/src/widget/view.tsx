import * as React from 'react';

import { Bounds } from '../components/bounds';
import { Button } from '../components/button';
import { Decisions } from '../components/decisions';
import { useRedraw } from '../components/hooks';
import { Nodes } from '../components/nodes';
import { PoolCard } from '../components/pool';
import { Section } from '../components/section';
import { VolumeNotes } from '../components/volumenotes';
import { bounds, run } from '../model/equivalent';
import { whole } from '../model/format';
import { UNTRANSLATED } from '../model/translation';
import { PoolRow } from '../protocol';
import { PoolModel } from './model';

const COUNTS = ['running', 'queued', 'done', 'failed', 'cancelled'] as const;

/** The numbers of tasks by state. */
function Counts(props: { pool: PoolRow }): JSX.Element {
  const { pool } = props;
  return (
    <p className="skyward-Counts">
      {COUNTS.filter(state => state !== 'cancelled' || pool.cancelled).map(state => (
        <span
          key={state}
          className={`skyward-Counts-${state}${state === 'failed' && pool.failed ? ' skyward-mod-bad' : ''}`}
        >
          <b>{whole(pool[state])}</b> {state}
        </span>
      ))}
    </p>
  );
}

/** The question whether to stop a pool with unfinished tasks. */
function Question(props: { tasks: number; onStop: () => void; onKeep: () => void }): JSX.Element {
  const tasks = props.tasks === 1 ? '1 unfinished task' : `${whole(props.tasks)} unfinished tasks`;
  return (
    <p className="skyward-Question" onKeyDown={event => event.key === 'Escape' && props.onKeep()}>
      {tasks} will be lost.
      <Button onClick={props.onStop}>Stop</Button>
      <Button autoFocus onClick={props.onKeep}>
        Keep
      </Button>
    </p>
  );
}

/** The card of the pool, with its controls. */
function Card(props: { model: PoolModel; pool: PoolRow }): JSX.Element {
  const { model, pool } = props;
  const [isAsking, setIsAsking] = React.useState(false);
  const left = pool.running + pool.queued;
  const stop = (description: string) => {
    setIsAsking(false);
    model.send(run('down', { pool: pool.name }), description);
  };
  return (
    <PoolCard
      pool={pool}
      trans={UNTRANSLATED}
      actions={
        <Button
          title="Terminate the machines: pool.close()"
          disabled={pool.state === 'stopping' || pool.state === 'closed'}
          onClick={() => (left ? setIsAsking(true) : stop('Terminating the machines.'))}
        >
          Stop
        </Button>
      }
    >
      <Counts pool={pool} />
      {isAsking && (
        <Question
          tasks={left}
          onStop={() => stop('Cancelling the tasks and terminating the machines.')}
          onKeep={() => setIsAsking(false)}
        />
      )}
      <Bounds
        pool={pool}
        onScale={(min, max) => {
          model.send(run('scale', { pool: pool.name, nodes: bounds(min, max) }), `Scaling to ${min} to ${max} nodes.`);
          return Promise.resolve();
        }}
        equivalent={(min, max) => `pool.resize((${min}, ${max}))`}
        trans={UNTRANSLATED}
      />
    </PoolCard>
  );
}

/** One display of a pool. Keys that are typed in it do not trigger shortcuts of the notebook. */
export function PoolView(props: { model: PoolModel }): JSX.Element | null {
  const { model } = props;
  useRedraw(model.subscribe);
  const { pool, store, notice } = model;
  if (!pool) {
    return null;
  }
  const { nodes, gauges, volumes, decisions, points } = store.rows;
  return (
    <div className="skyward-Widget skyward-Root" data-lm-suppress-shortcuts="true">
      <Card model={model} pool={pool} />
      <VolumeNotes rows={[...volumes.values()]} trans={UNTRANSLATED} />
      <div className="skyward-Widget-columns">
        <Section name="widget-nodes" title="Nodes" summary={whole(nodes.size)}>
          <Nodes pool={pool} nodes={[...nodes.values()]} gauges={gauges} trans={UNTRANSLATED} />
        </Section>
        <Section name="widget-decisions" title="Scaling">
          <Decisions rows={[...decisions.values()]} points={[...points.values()]} trans={UNTRANSLATED} />
        </Section>
      </div>
      <p
        className={`skyward-Widget-notice${notice.isError ? ' skyward-mod-bad' : ''}`}
        role="status"
        aria-live="polite"
      >
        {notice.text}
      </p>
    </div>
  );
}
