import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

/** An icon as high as the text. */
export function Icon(props: { icon: LabIcon }): JSX.Element {
  return <props.icon.react tag="span" className="skyward-Icon" aria-hidden width="16px" height="16px" />;
}

const small = (name: string, path: string) =>
  new LabIcon({
    name: `skyward:${name}`,
    svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="${path}"/>
</svg>`
  });

/** Two upright bars. */
export const pauseIcon = small('pause', 'M7 5h4v14H7zM13 5h4v14h-4z');

/** A square in a frame. */
export const stopAllIcon = small('stop-all', 'M4 4h16v16H4zM6 6v12h12V6zM9 9h6v6H9z');

/** Three nodes under a rising line. */
export const icon = new LabIcon({
  name: 'skyward:panel',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="24" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M3.3 14.7 9 9l4 4 6.3-6.3L17 4.4h6v6l-2.3-2.3L13 15.8l-4-4-4.3 4.3z"/>
    <circle cx="5" cy="20" r="2"/><circle cx="12" cy="20" r="2"/><circle cx="19" cy="20" r="2"/>
  </g>
</svg>`
});
