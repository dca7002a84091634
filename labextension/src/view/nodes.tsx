import * as React from 'react';

import { progress } from '../model/booting';
import { equivalent, run } from '../model/equivalent';
import { duration, money, share, size, whole } from '../model/format';
import { nodesInOrder } from '../model/lists';
import { Translation } from '../model/panel';
import { nodeState } from '../model/states';
import { GaugeRow, NodeRow, PoolRow, TaskRow, StartupFailureRow } from '../protocol';
import { LongList, Section, State, useNow } from './parts';
import { PartProps } from './pool';
import { Source } from './streams';
import { StartupFailures } from './failures';

const ROW = 24;
const OPEN = 128;
/** Height of one more line of an open row. */
const LINE = 18;
const MOST = 288;
/** Number of nodes above which there is a summary and a filter. */
const MANY = 20;

/** A share as a number and a bar; a dash if it is unknown. */
function Gauge(props: {
  label: string;
  value: number | null | undefined;
  /** Used memory of the GPUs, GB. */
  bytes?: number | null;
}): JSX.Element {
  const known = props.value !== null && props.value !== undefined;
  return (
    <span className="skyward-Gauge" title={props.label}>
      <span className="skyward-Gauge-value">{share(props.value)}</span>
      {known && (
        <span className="skyward-Gauge-bar" aria-hidden>
          <span style={{ width: share(props.value) }} />
        </span>
      )}
      {typeof props.bytes === 'number' && <span className="skyward-Gauge-memory">{size(props.bytes)}</span>}
    </span>
  );
}

/** The startup phase of a node: its elapsed and usual duration. */
function Booting(props: { node: NodeRow; now: number; trans: Translation }): JSX.Element {
  const { node, trans } = props;
  const phase = progress(node, props.now);
  const elapsed = phase?.elapsed ?? (node.asked_at === null ? '' : duration(props.now - node.asked_at));
  const title = phase?.usual ? trans.__('%1 for %2; usually %3', node.phase, phase.elapsed, phase.usual) : undefined;
  return (
    <span className={`skyward-Boot${phase?.late ? ' skyward-mod-late' : ''}`} title={title}>
      <span className="skyward-Boot-elapsed">{elapsed}</span>
      {phase?.usual ? (
        <>
          <span className="skyward-Boot-usual">{trans.__('of ~%1', phase.usual)}</span>
          <span className="skyward-Boot-kind">{node.kind}</span>
          <span className="skyward-Gauge-bar" aria-hidden>
            <span style={{ width: share(phase.part) }} />
          </span>
        </>
      ) : (
        <span className="skyward-Boot-kind">{node.kind}</span>
      )}
    </span>
  );
}

/** Actions on a node besides draining it. */
interface NodeActions {
  openLog: (pool: string, node: number) => void;
  openTerminal: ((pool: string, node: number) => void) | null;
  onOutput: (source: Source) => void;
}

function Details(
  props: PartProps & NodeActions & { node: NodeRow; pool: PoolRow; tasks: TaskRow[]; now: number; gauge?: GaugeRow }
): JSX.Element {
  const { node, pool, gauge, trans } = props;
  const request = run('drain', { pool: pool.name, node: node.rank });
  const running = props.tasks.filter(task => task.state === 'running' && task.node === node.rank);
  const used = [
    trans.__('cpu %1', share(gauge?.cpu)),
    trans.__('mem %1', share(gauge?.memory)),
    ...(typeof gauge?.gpu === 'number' ? [trans.__('gpu %1', share(gauge.gpu))] : [])
  ];
  const facts: [string, string][] = [
    [trans.__('machine'), node.kind || '–'],
    [trans.__('address'), node.address || '–'],
    [
      trans.__('cost'),
      `${money(node.price)}/h · ${node.asked_at === null ? '–' : duration(props.now - node.asked_at)}`
    ],
    [trans.__('in use'), used.join(' · ')],
    [trans.__('tasks'), running.map(task => `${task.number} ${task.title}`).join(', ') || '–'],
    ...(node.kept.length ? [[trans.__('keeps'), node.kept.join(', ')] as [string, string]] : [])
  ];
  return (
    <div className="skyward-Details">
      <dl>
        {facts.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd title={value}>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
      <div className="skyward-Details-buttons">
        <button
          className="skyward-Button"
          title={equivalent(request)}
          disabled={node.state !== 'active'}
          onClick={() => void props.send(request)}
        >
          {trans.__('Drain')}
        </button>
        {node.terminal_access && props.openTerminal && (
          <button
            className="skyward-Button"
            title={
              node.terminal_access === 'here'
                ? trans.__('Open a terminal in the folder of this node')
                : trans.__('Open a terminal on this node')
            }
            onClick={() => props.openTerminal?.(pool.name, node.rank)}
          >
            {trans.__('Terminal')}
          </button>
        )}
        <button
          className="skyward-Button"
          title={`${trans.__('Show the startup log of this node')}\n${equivalent({ command: 'logs', arguments: request.arguments })}`}
          onClick={() => props.openLog(pool.name, node.rank)}
        >
          {trans.__('Log')}
        </button>
        <button
          className="skyward-Button"
          title={trans.__('Show only the output of this node')}
          onClick={() => props.onOutput({ node: node.rank, task: null })}
        >
          {trans.__('Output')}
        </button>
      </div>
    </div>
  );
}

/** Return the number of nodes of each kind: `996 active · 4 waiting`. */
function summary(nodes: readonly NodeRow[], kind: (node: NodeRow) => string): string {
  const counts = new Map<string, number>();
  nodes.forEach(node => counts.set(kind(node), (counts.get(kind(node)) ?? 0) + 1));
  return [...counts].map(([name, count]) => `${whole(count)} ${name}`).join(' · ');
}

/** The nodes of a pool. */
export function Nodes(
  props: PartProps &
    NodeActions & {
      pool: PoolRow;
      nodes: NodeRow[];
      tasks: TaskRow[];
      startup_failures: StartupFailureRow[];
      gauges: ReadonlyMap<string, GaugeRow>;
    }
): JSX.Element {
  const { pool, trans } = props;
  const [open, setOpen] = React.useState<string | null>(null);
  const [filter, setFilter] = React.useState('');
  const isMoving = props.nodes.some(node => node.state !== 'active');
  const now = useNow(open !== null || isMoving);
  const nodes = nodesInOrder(props.nodes, filter);
  const keyOf = (node: NodeRow) => `${node.machine}`;
  const keepsSomething = nodes.some(node => keyOf(node) === open && node.kept.length > 0);
  const gaugeOf = (node: NodeRow) => props.gauges.get(`${node.pool}/${node.machine}`);
  return (
    <Section name="nodes" title={trans.__('Nodes')} summary={whole(props.nodes.length)}>
      {props.nodes.length > MANY && (
        <div className="skyward-Filter">
          <p>
            {summary(props.nodes, node => node.status)}
            {new Set(props.nodes.map(node => node.group)).size > 1 && (
              <>
                <br />
                {summary(props.nodes, node => node.group)}
              </>
            )}
          </p>
          <input
            type="search"
            aria-label={trans.__('Filter the nodes')}
            placeholder={trans.__('Filter: state, group, machine, rank')}
            value={filter}
            onChange={event => setFilter(event.currentTarget.value)}
          />
        </div>
      )}
      <StartupFailures rows={props.startup_failures} openLog={props.openLog} trans={trans} />
      {nodes.length === 0 && (
        <p className="skyward-Empty">
          {filter ? trans.__('No matching nodes.') : trans.__('No nodes; the first task starts one.')}
        </p>
      )}
      <LongList
        label={trans.__('Nodes of pool %1', pool.name)}
        items={nodes}
        row={ROW}
        most={MOST}
        keyOf={keyOf}
        open={open}
        openHeight={keepsSomething ? OPEN + LINE : OPEN}
        onEscape={() => setOpen(null)}
        render={node => (
          <button
            className="skyward-Node"
            aria-expanded={open === keyOf(node)}
            onClick={() => setOpen(open === keyOf(node) ? null : keyOf(node))}
          >
            <span className="skyward-Node-rank">
              <span
                className="skyward-Node-head"
                title={node.rank === 0 ? trans.__('Head node') : undefined}
                aria-label={node.rank === 0 ? trans.__('head') : undefined}
              >
                {node.rank === 0 ? '★' : ''}
              </span>
              {node.rank}
            </span>
            <State {...nodeState(node, trans)} />
            {node.state === 'active' || node.state === 'draining' ? (
              <>
                <span className="skyward-Node-slots">
                  {node.busy}/{node.slots}
                </span>
                <Gauge
                  label={trans.__('GPU, or CPU where there is none')}
                  value={gaugeOf(node)?.gpu ?? gaugeOf(node)?.cpu}
                  bytes={gaugeOf(node)?.gpu_bytes}
                />
              </>
            ) : (
              <Booting node={node} now={now} trans={trans} />
            )}
          </button>
        )}
        renderOpen={node => <Details {...props} node={node} now={now} gauge={gaugeOf(node)} />}
      />
    </Section>
  );
}
