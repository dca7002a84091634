/** Stands in for `@jupyterlab/ui-components`, whose toolkit needs a real browser (tests/ui has one). */
import * as React from 'react';

class Icon {
  react = (props: { className?: string }): JSX.Element => <span className={props.className} />;
}

export const LabIcon = Icon;
export const caretDownIcon = new Icon();
export const caretRightIcon = new Icon();
export const closeIcon = new Icon();
export const ellipsesIcon = new Icon();
export const runIcon = new Icon();
export const stopIcon = new Icon();
