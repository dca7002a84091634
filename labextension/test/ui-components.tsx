/** Stands in for `@jupyterlab/ui-components`, whose toolkit needs a real browser (tests/ui has one). */
import * as React from 'react';

class Icon {
  react = (props: { className?: string }): JSX.Element => <span className={props.className} />;
}

export function InputGroup(props: React.InputHTMLAttributes<HTMLInputElement>): JSX.Element {
  return <input {...props} />;
}

export function HTMLSelect({
  options,
  ...others
}: React.SelectHTMLAttributes<HTMLSelectElement> & { options: string[] }): JSX.Element {
  return (
    <select {...others}>
      {options.map(each => (
        <option key={each}>{each}</option>
      ))}
    </select>
  );
}

export const LabIcon = Icon;
export const caretDownIcon = new Icon();
export const caretRightIcon = new Icon();
export const closeIcon = new Icon();
export const ellipsesIcon = new Icon();
export const runIcon = new Icon();
export const stopIcon = new Icon();
