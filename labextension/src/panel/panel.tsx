import { ellipsesIcon, ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Button, IconButton } from '../components/button';
import { CommandRequest } from '../model/equivalent';
import { RunRequest } from '../protocol';
import { Translation } from '../model/translation';
import { INotebookPools } from '../tokens';
import { Announcer } from './announcer';
import { LostContact } from './disconnected';
import { FailedPools } from './failedpools';
import { NewPool, RefusedPool } from './form';
import { Icon } from './icons';
import { useModel } from './model';
import { Orphans } from './orphans';
import { placeholder } from './placeholder';
import { Pool } from './pool';
import { Sections } from './sections';
import { PanelServices } from './services';

const SMALLEST = '%%sky --nodes 2\n6 * 7';

interface BodyProps {
  model: INotebookPools;
  trans: Translation;
  services: PanelServices;
}

function Body(props: BodyProps): JSX.Element {
  const { model, trans, services } = props;
  const { actions } = services;
  useModel(model);
  const [chosen, setChosen] = React.useState('');
  const [refused, setRefused] = React.useState<RefusedPool | null>(null);
  const link = model.link;
  const pools = model.pools;
  const pool = pools.find(each => each.name === chosen) ?? pools[0];
  const empty = placeholder(link, model.notebook !== null, trans, actions);
  const isLost = Boolean(link?.lost);
  const send = (request: RunRequest) => model.send(request);
  const ask = (request: CommandRequest) => model.ask(request);
  const kernel = model.notebook?.sessionContext.kernelDisplayName;
  const name = model.notebook?.title.label;
  return (
    <div className="skyward-Panel-body">
      <header className="skyward-Head">
        <h2>{trans.__('Skyward')}</h2>
        <IconButton
          icon={<Icon icon={ellipsesIcon} />}
          title={trans.__('Help, settings, stop all')}
          popup
          onClick={event => services.openMenu(event.currentTarget)}
        />
      </header>
      {name && (
        <p className="skyward-Kernel" title={`${name} · ${kernel}`}>
          {name} · {kernel}
        </p>
      )}
      <Announcer
        pools={pools}
        startup_failures={[...(link?.store.rows.startup_failures.values() ?? [])]}
        failed={model.failedPools}
        volumes={[...(link?.store.rows.volumes.values() ?? [])]}
        trans={trans}
      />
      <div aria-live="polite">
        {model.notice && (
          <div className={`skyward-Notice skyward-mod-${model.notice.kind}`}>
            <span>{model.notice.text}</span>
            <button type="button" aria-label={trans.__('Dismiss')} onClick={() => model.notify(null)}>
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
          <FailedPools rows={isLost ? [] : model.failedPools} onDismiss={each => model.dismiss(each)} trans={trans} />
          {pools.length === 0 && (
            <div className="skyward-Placeholder">
              <p>{trans.__('No pools yet. A cell like this opens one:')}</p>
              <pre>{SMALLEST}</pre>
              <Button onClick={() => void navigator.clipboard?.writeText(SMALLEST)}>{trans.__('Copy')}</Button>
            </div>
          )}
          <div className={isLost ? 'skyward-mod-stale' : undefined} {...(isLost ? { inert: '' } : {})}>
            {pools.map(each => (
              <Pool
                key={each.name}
                pool={each}
                selected={each === pool}
                actions={actions}
                onSelect={() => setChosen(each.name)}
                trans={trans}
                send={send}
              />
            ))}
            {link && pool && (
              <Sections
                key={pool.name}
                pool={pool}
                store={link.store}
                services={services}
                openCell={id => model.openCell(id)}
                trans={trans}
                send={send}
                ask={ask}
              />
            )}
          </div>
          {model.isFormOpen && link && !isLost ? (
            <NewPool
              form={link.store.form}
              names={pools.map(each => each.name)}
              refused={refused}
              ask={ask}
              trans={trans}
              submit={request => model.submit(request)}
              onRefused={each => {
                if (model.isFormOpen) {
                  model.notify({ text: each.reason, kind: 'error' });
                } else {
                  setRefused(each);
                  model.isFormOpen = true;
                }
              }}
              onClose={() => {
                setRefused(null);
                model.isFormOpen = false;
              }}
            />
          ) : (
            <div className="skyward-Buttons">
              <Button
                title="%sky up"
                disabled={isLost}
                onClick={() => {
                  model.isFormOpen = true;
                }}
              >
                {trans.__('+ New pool')}
              </Button>
              <Button onClick={() => actions.insertCell()}>{trans.__('Insert %1', '%%sky')}</Button>
              {pools.length > 1 && (
                <Button title="%sky down --all" onClick={() => actions.stopAll()}>
                  {trans.__('Stop all')}
                </Button>
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
    private readonly _model: INotebookPools,
    private readonly _trans: Translation,
    private readonly _services: PanelServices
  ) {
    super();
    this.addClass('skyward-Panel');
    this.addClass('skyward-Root');
  }

  /** Called each time the panel becomes visible. */
  onShown: () => void = () => undefined;

  protected onAfterShow(message: Parameters<ReactWidget['processMessage']>[0]): void {
    super.onAfterShow(message);
    this.onShown();
  }

  protected render(): JSX.Element {
    return <Body model={this._model} trans={this._trans} services={this._services} />;
  }
}
