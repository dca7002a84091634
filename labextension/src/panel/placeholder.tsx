import * as React from 'react';

import { Button } from '../components/button';
import { KernelLink } from '../kernel/link';
import { Translation } from '../model/translation';
import { IPoolActions } from '../tokens';

function Empty(props: { text: string; button?: string; onClick?: () => void }): JSX.Element {
  return (
    <div className="skyward-Placeholder">
      <p>{props.text}</p>
      {props.button && (
        <Button main onClick={props.onClick}>
          {props.button}
        </Button>
      )}
    </div>
  );
}

/** Return the placeholder for a panel that cannot show pools; null if it can. */
export function placeholder(
  link: KernelLink | null,
  hasNotebook: boolean,
  trans: Translation,
  actions: IPoolActions
): JSX.Element | null {
  switch (link?.contact) {
    case undefined:
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
          onClick={() => actions.insertLoad()}
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
