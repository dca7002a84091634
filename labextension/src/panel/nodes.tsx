import * as React from 'react';

import { Button } from '../components/button';
import { Nodes } from '../components/nodes';
import { Section } from '../components/section';
import { equivalent, run } from '../model/equivalent';
import { whole } from '../model/format';
import { isDrainable } from '../model/lists';
import { GaugeRow, NodeRow, PoolRow, StartupFailureRow, TaskRow } from '../protocol';
import { INodeTerminals, IStartLogs } from '../tokens';
import { StartupFailures } from './failures';
import { PartProps } from './props';
import { Source } from './streams';

/** Services for the buttons of a node. */
interface NodeServices {
  logs: IStartLogs;
  terminals: INodeTerminals;
  onOutput: (source: Source) => void;
}

function Buttons(props: PartProps & NodeServices & { node: NodeRow }): JSX.Element {
  const { node, trans } = props;
  const drain = run('drain', { pool: node.pool, node: node.rank });
  const log = equivalent({ command: 'logs', arguments: drain.arguments });
  return (
    <>
      <Button
        title={isDrainable(node) || node.rank > 0 ? equivalent(drain) : trans.__('The head node cannot be drained.')}
        disabled={!isDrainable(node)}
        onClick={() => void props.send(drain)}
      >
        {trans.__('Drain')}
      </Button>
      {node.terminal_access && props.terminals.isAvailable && (
        <Button
          title={
            node.terminal_access === 'here'
              ? trans.__('Open a terminal in the folder of this node')
              : trans.__('Open a terminal on this node')
          }
          onClick={() => props.terminals.open(node.pool, node.rank)}
        >
          {trans.__('Terminal')}
        </Button>
      )}
      <Button
        title={`${trans.__('Show the startup log of this node')}\n${log}`}
        onClick={() => props.logs.open(node.pool, node.rank)}
      >
        {trans.__('Log')}
      </Button>
      <Button
        title={trans.__('Show only the output of this node')}
        onClick={() => props.onOutput({ node: node.rank, task: null })}
      >
        {trans.__('Output')}
      </Button>
    </>
  );
}

/** The section with the nodes of a pool, and those that failed to start. */
export function NodesSection(
  props: PartProps &
    NodeServices & {
      pool: PoolRow;
      nodes: NodeRow[];
      tasks: TaskRow[];
      startup_failures: StartupFailureRow[];
      gauges: ReadonlyMap<string, GaugeRow>;
    }
): JSX.Element {
  const { trans } = props;
  const running = (node: NodeRow) =>
    props.tasks
      .filter(task => task.state === 'running' && task.node === node.rank)
      .map(task => `${task.number} ${task.title}`);
  return (
    <Section name="nodes" title={trans.__('Nodes')} summary={whole(props.nodes.length)}>
      <Nodes
        pool={props.pool}
        nodes={props.nodes}
        gauges={props.gauges}
        extras={{
          facts: node => [[trans.__('tasks'), running(node).join(', ') || '–']],
          buttons: node => <Buttons {...props} node={node} />
        }}
        trans={trans}
      >
        <StartupFailures rows={props.startup_failures} logs={props.logs} trans={trans} />
      </Nodes>
    </Section>
  );
}
