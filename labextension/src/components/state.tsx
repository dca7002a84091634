import * as React from 'react';

import { StateLabel } from '../model/states';

/** The label of a state: an icon and a word, never colour alone. */
export function State(props: StateLabel): JSX.Element {
  return (
    <span className={`skyward-State skyward-mod-${props.tone}`}>
      <span aria-hidden>{props.icon}</span> {props.word}
    </span>
  );
}
