import { ellipsesIcon, ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Contact, KernelLink } from '../model/link';
import { CommandRequest, RunRequest } from '../model/equivalent';
import { PanelModel, Translation } from '../model/panel';
import { PoolRow } from '../protocol';
import { Announcer } from './announcer';
import { Decisions } from './decisions';
import { NewPool } from './form';
import { LostContact } from './disconnected';
import { Money } from './cost';
import { Nodes } from './nodes';
import { Orphans } from './orphans';
import { IconButton } from './parts';
import { PoolCard } from './pool';
import { Source, Streams } from './streams';
import { Tasks } from './tasks';

/** Actions of the panel that need the application. */
export interface Actions {
  insertLoad: () => void;
  insertCell: () => void;
  /** Insert a cell with a `%sky` line. */
  insertLine: (line: string) => void;
  stopPool: (pool: PoolRow) => void;
  stopAll: () => void;
  /** Open the menu of the panel below its button. */
  openMenu: (button: HTMLElement) => void;
  /** Insert a cell that shows the tasks of a previous kernel. */
  insertRecovered: (pool: PoolRow) => void;
  /** Show the startup log of a node. */
  openLog: (pool: string, node: number) => void;
  /** Open a terminal on a node; null if terminals are not available. */
  openTerminal: ((pool: string, node: number) => void) | null;
}

const SMALLEST = '%%sky --nodes 2\n6 * 7';

/** Redraw when the model has changed, at most once per frame. */
export function useModel(model: PanelModel): void {
  const [, draw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    let frame = 0;
    const onChange = () => {
      frame ||= window.requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    };
    model.changed.connect(onChange);
    onChange();
    return () => {
      window.cancelAnimationFrame(frame);
      model.changed.disconnect(onChange);
    };
  }, [model]);
}

function Empty(props: { text: string; button?: string; onClick?: () => void }): JSX.Element {
  return (
    <div className="skyward-Nothing">
      <p>{props.text}</p>
      {props.button && (
        <button className="skyward-Button skyward-mod-main" onClick={props.onClick}>
          {props.button}
        </button>
      )}
    </div>
  );
}

/** Return the placeholder for a panel that cannot show pools; null if it can. */
function placeholder(
  link: KernelLink | null,
  hasNotebook: boolean,
  trans: Translation,
  actions: Actions
): JSX.Element | null {
  const contact: Contact | null = link?.contact ?? null;
  switch (contact) {
    case null:
      return hasNotebook ? (
        <Empty text={trans.__('This notebook has no kernel; its pools were closed with the last one.')} />
      ) : (
        <Empty text={trans.__('Open a notebook to see its pools.')} />
      );
    case 'absent':
      return link?.restarted ? (
        <Empty
          text={trans.__(
            'The kernel was restarted. Pools on other machines keep running until their lease expires: load Skyward to reattach or stop them.'
          )}
          button={trans.__('Load Skyward')}
          onClick={() => link.load()}
        />
      ) : (
        <Empty
          text={trans.__('Skyward is not loaded in this kernel.')}
          button={trans.__('Insert %1', '%load_ext skyward')}
          onClick={actions.insertLoad}
        />
      );
    case 'connecting':
      return <Empty text={trans.__('Looking for pools…')} />;
    case 'incompatible':
      return (
        <Empty text={trans.__('The kernel has another version of Skyward: reload this page, or restart the kernel.')} />
      );
    case 'restarting':
      return link?.lost ? null : <Empty text={trans.__('The kernel is restarting…')} />;
    case 'dead':
      return link?.lost ? null : <Empty text={trans.__('The kernel has died.')} />;
    case 'live':
      return null;
  }
}

function Body(props: { model: PanelModel; trans: Translation; actions: Actions }): JSX.Element {
  const { model, trans, actions } = props;
  useModel(model);
  const [chosen, setChosen] = React.useState('');
  const link = model.link;
  const pools = model.pools;
  const pool = pools.find(each => each.name === chosen) ?? pools[0];
  const empty = placeholder(link, model.notebook !== null, trans, actions);
  const isLost = Boolean(link?.lost);
  const send = (request: RunRequest) => model.send(request);
  const ask = React.useCallback((request: CommandRequest) => model.ask(request), [model]);
  const [source, setSource] = React.useState<Source | null>(null);
  const kernel = model.notebook?.sessionContext.kernelDisplayName;
  const name = model.notebook?.title.label;
  return (
    <div className="skyward-Panel-body">
      <header className="skyward-Head">
        <h2>{trans.__('Skyward')}</h2>
        <IconButton
          icon={ellipsesIcon}
          title={trans.__('Help, settings, stop all')}
          popup
          onClick={event => actions.openMenu(event.currentTarget)}
        />
      </header>
      {name && (
        <p className="skyward-Where" title={`${name} · ${kernel}`}>
          {name} · {kernel}
        </p>
      )}
      <Announcer
        pools={pools}
        startup_failures={[...(link?.store.rows.startup_failures.values() ?? [])]}
        trans={trans}
      />
      <div aria-live="polite">
        {model.notice && (
          <div className={`skyward-Notice skyward-mod-${model.notice.kind}`}>
            <span>{model.notice.text}</span>
            <button aria-label={trans.__('Dismiss')} onClick={() => model.notify(null)}>
              ✕
            </button>
          </div>
        )}
      </div>
      {empty}
      {link && <LostContact link={link} trans={trans} />}
      {!empty && (
        <>
          <Orphans
            orphans={isLost ? [] : model.orphans}
            names={pools.map(each => each.name)}
            trans={trans}
            send={send}
          />
          {pools.length === 0 && (
            <div className="skyward-Nothing">
              <p>{trans.__('No pools yet. A cell like this opens one:')}</p>
              <pre>{SMALLEST}</pre>
              <button className="skyward-Button" onClick={() => void navigator.clipboard?.writeText(SMALLEST)}>
                {trans.__('Copy')}
              </button>
            </div>
          )}
          <div className={isLost ? 'skyward-mod-stale' : undefined} {...(isLost ? { inert: '' } : {})}>
            {pools.map(each => (
              <PoolCard
                key={each.name}
                pool={each}
                selected={each === pool}
                trans={trans}
                send={send}
                onSelect={() => setChosen(each.name)}
                onStop={() => actions.stopPool(each)}
                onRecovered={() => actions.insertRecovered(each)}
              />
            ))}
            {link && pool && (
              <React.Fragment key={pool.name}>
                <Nodes
                  pool={pool}
                  tasks={link.store.of('tasks', pool.name)}
                  nodes={link.store.of('nodes', pool.name)}
                  gauges={link.store.rows.gauges}
                  startup_failures={link.store.of('startup_failures', pool.name)}
                  openLog={actions.openLog}
                  openTerminal={actions.openTerminal}
                  onOutput={setSource}
                  trans={trans}
                  send={send}
                />
                <Decisions
                  rows={link.store.of('decisions', pool.name)}
                  points={link.store.of('points', pool.name)}
                  trans={trans}
                />
                <Tasks
                  pool={pool}
                  tasks={link.store.of('tasks', pool.name)}
                  openCell={id => model.openCell(id)}
                  onOutput={setSource}
                  trans={trans}
                  send={send}
                />
                <Money
                  pool={pool}
                  cells={link.store.of('cells', pool.name)}
                  openCell={id => model.openCell(id)}
                  trans={trans}
                />
                <Streams
                  pool={pool.name}
                  rows={link.store.of('output', pool.name)}
                  tasks={link.store.of('tasks', pool.name)}
                  source={source}
                  onSource={setSource}
                  ask={ask}
                  trans={trans}
                />
              </React.Fragment>
            )}
          </div>
          {model.isFormOpen && link && !isLost ? (
            <NewPool
              form={link.store.form}
              names={pools.map(each => each.name)}
              ask={ask}
              trans={trans}
              send={send}
              onClose={() => {
                model.isFormOpen = false;
              }}
            />
          ) : (
            <div className="skyward-Buttons">
              <button
                className="skyward-Button"
                title="%sky up"
                disabled={isLost}
                onClick={() => {
                  model.isFormOpen = true;
                }}
              >
                {trans.__('+ New pool')}
              </button>
              <button className="skyward-Button" onClick={actions.insertCell}>
                {trans.__('Insert %1', '%%sky')}
              </button>
              {pools.length > 1 && (
                <button className="skyward-Button" title="%sky down --all" onClick={actions.stopAll}>
                  {trans.__('Stop all')}
                </button>
              )}
            </div>
          )}
        </>
      )}
    </div>
  );
}

/** The side panel. */
export class SkywardPanel extends ReactWidget {
  constructor(
    private readonly _model: PanelModel,
    private readonly _trans: Translation,
    private readonly _actions: Actions
  ) {
    super();
    this.addClass('skyward-Panel');
  }

  /** Called each time the panel becomes visible. */
  onShown: () => void = () => undefined;

  protected onAfterShow(message: Parameters<ReactWidget['processMessage']>[0]): void {
    super.onAfterShow(message);
    this.onShown();
  }

  protected render(): JSX.Element {
    return <Body model={this._model} trans={this._trans} actions={this._actions} />;
  }
}
