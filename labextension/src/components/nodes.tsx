import * as React from 'react';

import { duration, money, share, whole } from '../model/format';
import { nodesInOrder } from '../model/lists';
import { Translation } from '../model/translation';
import { GaugeRow, NodeRow, PoolRow } from '../protocol';
import { useNow } from './hooks';
import { LongList } from './list';
import { NodeLine } from './node';

/** Heights in pixels: of a row, of a line of an open row, of its buttons, of its padding, and of the whole list. */
const ROW = 24;
const LINE = 18;
const BUTTONS = 30;
const PADDING = 10;
const MOST = 288;
/** Number of nodes above which there is a summary and a filter. */
const MANY = 20;

/** A name and a value. */
export type Fact = [name: string, value: string];

/** Details of a node, shown below the facts about its machine after a click. */
export interface NodeExtras {
  facts: (node: NodeRow) => Fact[];
  buttons: (node: NodeRow) => React.ReactNode;
}

/** Return the number of nodes of each kind: `996 active · 4 waiting`. */
function summary(nodes: readonly NodeRow[], kind: (node: NodeRow) => string): string {
  const counts = new Map<string, number>();
  nodes.forEach(node => counts.set(kind(node), (counts.get(kind(node)) ?? 0) + 1));
  return [...counts].map(([name, count]) => `${whole(count)} ${name}`).join(' · ');
}

function facts(node: NodeRow, gauge: GaugeRow | undefined, now: number, trans: Translation): Fact[] {
  const used = [
    trans.__('cpu %1', share(gauge?.cpu)),
    trans.__('mem %1', share(gauge?.memory)),
    ...(typeof gauge?.gpu === 'number' ? [trans.__('gpu %1', share(gauge.gpu))] : [])
  ];
  const age = node.asked_at === null ? '–' : duration(now - node.asked_at);
  const all: Fact[] = [
    [trans.__('machine'), node.kind || '–'],
    [trans.__('address'), node.address || '–'],
    [trans.__('cost'), `${money(node.price)}/h · ${age}`],
    [trans.__('in use'), used.join(' · ')]
  ];
  return node.kept.length ? [...all, [trans.__('keeps'), node.kept.join(', ')]] : all;
}

function Details(props: { facts: Fact[]; children?: React.ReactNode }): JSX.Element {
  return (
    <div className="skyward-Details">
      <dl>
        {props.facts.map(([name, value]) => (
          <React.Fragment key={name}>
            <dt>{name}</dt>
            <dd title={value}>{value}</dd>
          </React.Fragment>
        ))}
      </dl>
      {props.children && <div className="skyward-Details-buttons">{props.children}</div>}
    </div>
  );
}

function Filter(props: {
  nodes: readonly NodeRow[];
  value: string;
  onChange: (words: string) => void;
  trans: Translation;
}): JSX.Element {
  const { nodes, trans } = props;
  return (
    <div className="skyward-Filter">
      <p>{summary(nodes, node => node.status)}</p>
      {new Set(nodes.map(node => node.group)).size > 1 && <p>{summary(nodes, node => node.group)}</p>}
      <input
        type="search"
        className="jp-mod-styled"
        aria-label={trans.__('Filter the nodes')}
        placeholder={trans.__('Filter: state, group, machine, rank')}
        value={props.value}
        onChange={event => props.onChange(event.currentTarget.value)}
      />
    </div>
  );
}

/** The nodes of a pool. `children` precede the list; `extras` add to the details of a node. */
export function Nodes(props: {
  pool: PoolRow;
  nodes: readonly NodeRow[];
  gauges: ReadonlyMap<string, GaugeRow>;
  extras?: NodeExtras;
  children?: React.ReactNode;
  trans: Translation;
}): JSX.Element {
  const { extras, trans } = props;
  const [open, setOpen] = React.useState<string | null>(null);
  const [filter, setFilter] = React.useState('');
  const isMoving = props.nodes.some(node => node.state !== 'active');
  const now = useNow(open !== null || isMoving);
  const nodes = nodesInOrder(props.nodes, filter);
  const keyOf = (node: NodeRow) => `${node.machine}`;
  const gaugeOf = (node: NodeRow) => props.gauges.get(`${node.pool}/${node.machine}`);
  const factsOf = (node: NodeRow) => [...facts(node, gaugeOf(node), now, trans), ...(extras?.facts(node) ?? [])];
  const opened = nodes.find(node => keyOf(node) === open);
  return (
    <>
      {props.nodes.length > MANY && <Filter nodes={props.nodes} value={filter} onChange={setFilter} trans={trans} />}
      {props.children}
      {nodes.length === 0 && (
        <p className="skyward-Empty">
          {filter ? trans.__('No matching nodes.') : trans.__('No nodes; the first task starts one.')}
        </p>
      )}
      <LongList
        label={trans.__('Nodes of pool %1', props.pool.name)}
        items={nodes}
        row={ROW}
        most={MOST}
        keyOf={keyOf}
        render={node => (
          <NodeLine
            node={node}
            gauge={gaugeOf(node)}
            now={now}
            isOpen={open === keyOf(node)}
            onClick={() => setOpen(open === keyOf(node) ? null : keyOf(node))}
            trans={trans}
          />
        )}
        open={open}
        openHeight={opened ? factsOf(opened).length * LINE + PADDING + (extras ? BUTTONS : 0) : 0}
        renderOpen={node => <Details facts={factsOf(node)}>{extras?.buttons(node)}</Details>}
        onEscape={() => setOpen(null)}
        trans={trans}
      />
    </>
  );
}
