import * as React from 'react';

import { money } from '../model/format';
import { nodeState } from '../model/states';
import { Translation } from '../model/translation';
import { GaugeRow, NodeRow } from '../protocol';
import { Booting } from './booting';
import { Gauge } from './gauge';
import { State } from './state';

/** One line about a node: its rank and state, and its load or its startup phase. A click opens its details. */
export function NodeLine(props: {
  node: NodeRow;
  gauge?: GaugeRow;
  now: number;
  isOpen: boolean;
  onClick: () => void;
  trans: Translation;
}): JSX.Element {
  const { node, gauge, trans } = props;
  const isHead = node.rank === 0;
  return (
    <button type="button" className="skyward-Node" aria-expanded={props.isOpen} onClick={props.onClick}>
      <span className="skyward-Node-rank">
        <span
          className="skyward-Node-head"
          title={isHead ? trans.__('Head node') : undefined}
          aria-label={isHead ? trans.__('head') : undefined}
        >
          {isHead ? '★' : ''}
        </span>
        {node.rank}
      </span>
      <State {...nodeState(node, trans)} />
      {node.state === 'active' || node.state === 'draining' ? (
        <>
          <span className="skyward-Node-slots">
            {node.busy}/{node.slots}
          </span>
          <span className="skyward-Node-machine">{node.kind}</span>
          <span className="skyward-Node-price">{node.price > 0 && `${money(node.price)}/h`}</span>
          <Gauge
            label={trans.__('GPU, or CPU where there is none')}
            value={gauge?.gpu ?? gauge?.cpu}
            bytes={gauge?.gpu_bytes}
          />
        </>
      ) : (
        <Booting node={node} now={props.now} trans={trans} />
      )}
    </button>
  );
}
