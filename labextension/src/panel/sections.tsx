import * as React from 'react';

import { Decisions } from '../components/decisions';
import { Section } from '../components/section';
import { Store } from '../model/store';
import { PoolRow } from '../protocol';
import { Costs } from './costs';
import { NodesSection } from './nodes';
import { Ask, PartProps } from './props';
import { PanelServices } from './services';
import { Source, Streams } from './streams';
import { Tasks } from './tasks';
import { VolumesSection } from './volumes';

/** The sections about one pool. */
export function Sections(
  props: PartProps & {
    pool: PoolRow;
    store: Store;
    services: PanelServices;
    openCell: (id: string) => void;
    ask: Ask;
  }
): JSX.Element {
  const { pool, store, services, openCell, trans, send } = props;
  const [source, setSource] = React.useState<Source | null>(null);
  const tasks = store.of('tasks', pool.name);
  return (
    <>
      <NodesSection
        pool={pool}
        tasks={tasks}
        nodes={store.of('nodes', pool.name)}
        gauges={store.rows.gauges}
        startup_failures={store.of('startup_failures', pool.name)}
        logs={services.logs}
        terminals={services.terminals}
        onOutput={setSource}
        trans={trans}
        send={send}
      />
      <VolumesSection rows={store.of('volumes', pool.name)} trans={trans} />
      <Section name="decisions" title={trans.__('Scaling')}>
        <Decisions rows={store.of('decisions', pool.name)} points={store.of('points', pool.name)} trans={trans} />
      </Section>
      <Tasks pool={pool} tasks={tasks} openCell={openCell} onOutput={setSource} trans={trans} send={send} />
      <Costs pool={pool} cells={store.of('cells', pool.name)} openCell={openCell} trans={trans} />
      <Streams
        pool={pool.name}
        rows={store.of('output', pool.name)}
        tasks={tasks}
        source={source}
        onSource={setSource}
        ask={props.ask}
        trans={trans}
      />
    </>
  );
}
