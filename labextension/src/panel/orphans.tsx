import * as React from 'react';

import { Button } from '../components/button';
import { useNow } from '../components/hooks';
import { State } from '../components/state';
import { equivalent, run } from '../model/equivalent';
import { clock, duration, money } from '../model/format';
import { OrphanRow } from '../protocol';
import { PartProps } from './props';

/** An orphaned pool, with buttons to attach to it or to terminate it. */
function Orphan(
  props: PartProps & {
    orphan: OrphanRow;
    now: number;
    taken: boolean;
  }
): JSX.Element {
  const { orphan, now, trans } = props;
  const [busy, setBusy] = React.useState(false);
  const attach = run('attach', { pool: orphan.name });
  const reap = run('reap', { pools: [orphan.id] });
  const left = orphan.ends_at - now;
  const machines = orphan.machines === 1 ? trans.__('1 machine') : trans.__('%1 machines', orphan.machines);
  const act = async (request: typeof attach | typeof reap) => {
    setBusy(true);
    await props.send(request);
    setBusy(false);
  };
  return (
    <article className="skyward-Pool skyward-Orphan" data-orphan={orphan.name}>
      <header>
        <span className="skyward-Pool-name">{orphan.name}</span>
        <State
          icon="◑"
          word={busy ? trans.__('working…') : orphan.warm ? trans.__('kept warm') : trans.__('orphaned')}
          tone="busy"
        />
      </header>
      <p className="skyward-Pool-line">
        {machines} · {money(orphan.per_hour)}/h
      </p>
      <p
        className="skyward-Pool-line"
        title={trans.__('Process %1 on %2, last seen at %3', orphan.pid, orphan.host, clock(orphan.seen_at))}
      >
        {orphan.warm
          ? trans.__('Until %1, for the next pool with the same needs.', clock(orphan.ends_at))
          : left > 0
            ? trans.__('Its nodes terminate in %1, or once their tasks are done.', duration(left))
            : trans.__('Its nodes terminate now, or once their tasks are done.')}
      </p>
      <div className="skyward-Orphan-buttons">
        {!orphan.warm && (
          <Button
            main
            title={
              props.taken ? trans.__('This kernel has a pool of that name: stop that one first.') : equivalent(attach)
            }
            disabled={busy || props.taken || !orphan.attachable}
            onClick={() => void act(attach)}
          >
            {trans.__('Reattach')}
          </Button>
        )}
        <Button title={equivalent(reap)} disabled={busy} onClick={() => void act(reap)}>
          {trans.__('Stop')}
        </Button>
        <code className="skyward-Equivalent">{equivalent(orphan.warm ? reap : attach)}</code>
      </div>
    </article>
  );
}

/** The orphaned pools of other processes, such as this kernel before a restart. */
export function Orphans(
  props: PartProps & { orphans: readonly OrphanRow[]; names: readonly string[] }
): JSX.Element | null {
  const now = useNow(props.orphans.length > 0);
  if (props.orphans.length === 0) {
    return null;
  }
  return (
    <section aria-label={props.trans.__('Orphaned pools')}>
      {props.orphans.map(orphan => (
        <Orphan key={orphan.id} {...props} orphan={orphan} now={now} taken={props.names.includes(orphan.name)} />
      ))}
    </section>
  );
}
