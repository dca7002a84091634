import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { money, whole } from '../model/format';
import { Translation } from '../model/translation';
import { INotebookPools } from '../tokens';
import { useModel } from './model';

function Item(props: { model: INotebookPools; trans: Translation; onClick: () => void }): JSX.Element | null {
  const { model, trans } = props;
  useModel(model);
  const pools = model.pools;
  if (!pools.length) {
    return null;
  }
  const nodes = pools.reduce((sum, pool) => sum + pool.active, 0);
  const price = pools.reduce((sum, pool) => sum + pool.per_hour, 0);
  return (
    <button
      type="button"
      className="skyward-Status"
      title={trans.__('Show the pools of this notebook')}
      onClick={props.onClick}
    >
      {nodes === 1 ? trans.__('1 node') : trans.__('%1 nodes', whole(nodes))} · {money(price)}/h
    </button>
  );
}

/** The item of the status bar: the number of nodes, and their cost per hour. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly _model: INotebookPools,
    private readonly _trans: Translation,
    private readonly _onClick: () => void
  ) {
    super();
  }

  protected render(): JSX.Element {
    return <Item model={this._model} trans={this._trans} onClick={this._onClick} />;
  }
}
