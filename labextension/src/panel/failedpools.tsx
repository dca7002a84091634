import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IconButton } from '../components/button';
import { State } from '../components/state';
import { clock } from '../model/format';
import { Translation } from '../model/translation';
import { FailedPoolRow } from '../protocol';
import { Icon } from './icons';

/** The pools that failed to open, each with the reason, until they are dismissed or opened again. */
export function FailedPools(props: {
  rows: readonly FailedPoolRow[];
  onDismiss: (pool: string) => void;
  trans: Translation;
}): JSX.Element | null {
  const { rows, trans } = props;
  if (rows.length === 0) {
    return null;
  }
  return (
    <section aria-label={trans.__('Pools that failed to open')}>
      {rows.map(row => {
        const [reason, ...lines] = row.reason.split('\n');
        return (
          <article key={row.name} className="skyward-Pool skyward-FailedPool" data-failed={row.name}>
            <header>
              <span className="skyward-Pool-name">{row.name}</span>
              <State icon="✗" word={trans.__('failed')} tone="bad" />
              <IconButton
                icon={<Icon icon={closeIcon} />}
                title={trans.__('Dismiss pool %1', row.name)}
                onClick={() => props.onDismiss(row.name)}
              />
            </header>
            <p className="skyward-Pool-failure">{reason}</p>
            {lines.length > 0 && <pre>{lines.join('\n')}</pre>}
            <p className="skyward-Pool-line">{trans.__('It failed to open at %1.', clock(row.at))}</p>
          </article>
        );
      })}
    </section>
  );
}
