import * as React from 'react';

import { progress } from '../model/booting';
import { duration } from '../model/format';
import { Translation } from '../model/translation';
import { NodeRow } from '../protocol';
import { Bar } from './gauge';

/** The startup phase of a node: its elapsed and usual duration. */
export function Booting(props: { node: NodeRow; now: number; trans: Translation }): JSX.Element {
  const { node, trans } = props;
  const phase = progress(node, props.now);
  const isWaiting = node.state !== 'stopping' && node.asked_at !== null;
  const elapsed = phase?.elapsed ?? (isWaiting ? duration(props.now - (node.asked_at ?? props.now)) : '');
  const title = phase?.usual ? trans.__('%1 for %2; usually %3', node.phase, phase.elapsed, phase.usual) : undefined;
  return (
    <span className={`skyward-Boot${phase?.late ? ' skyward-mod-late' : ''}`} title={title}>
      <span className="skyward-Boot-elapsed">{elapsed}</span>
      {phase?.usual ? (
        <>
          <span className="skyward-Boot-usual">{trans.__('of ~%1', phase.usual)}</span>
          <span className="skyward-Boot-kind">{node.kind}</span>
          <Bar value={phase.part ?? 0} />
        </>
      ) : (
        <span className="skyward-Boot-kind">{node.kind}</span>
      )}
    </span>
  );
}
