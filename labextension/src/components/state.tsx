import * as React from 'react';

import { Label } from '../protocol';

/** The label of a state: an icon and a word, never colour alone. */
export function State(props: Label): JSX.Element {
  return (
    <span className={`skyward-State skyward-mod-${props.tone}`}>
      <span aria-hidden>{props.icon}</span> {props.word}
    </span>
  );
}
