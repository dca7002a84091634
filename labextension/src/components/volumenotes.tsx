import * as React from 'react';

import { reasons, reasonText, volumesOf, waitingText } from '../model/volumes';
import { Translation } from '../model/translation';
import { VOLUME_STATUSES, VolumeRow } from '../protocol';
import { State } from './state';

/** Maximum number of lines. */
const SHOWN = 4;

/** A line for each volume of a pool that fails, or has files that wait for their upload. */
export function VolumeNotes(props: { rows: readonly VolumeRow[]; trans: Translation }): JSX.Element | null {
  const { trans } = props;
  const volumes = volumesOf(props.rows);
  const failing = volumes.flatMap(volume =>
    reasons(volume).map(reason => ({ label: VOLUME_STATUSES[reason.status], volume, text: reasonText(reason, trans) }))
  );
  const waiting = volumes
    .map(volume => ({ label: VOLUME_STATUSES.flushing, volume, text: waitingText(volume.rows, trans) }))
    .filter(note => note.text);
  const notes = [...failing, ...waiting];
  if (!notes.length) {
    return null;
  }
  return (
    <ul className="skyward-VolumeNotes" aria-label={trans.__('Volumes that fail, or wait for uploads')}>
      {notes.slice(0, SHOWN).map(({ label, volume, text }) => (
        <li key={`${volume.key} ${text}`}>
          <State {...label} word={volume.mount} /> {text}
        </li>
      ))}
      {notes.length > SHOWN && <li className="skyward-Empty">{trans.__('%1 more', notes.length - SHOWN)}</li>}
    </ul>
  );
}
