import { LabIcon } from '@jupyterlab/ui-components';

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
