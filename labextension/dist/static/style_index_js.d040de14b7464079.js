"use strict";(self.rspackChunkskyward_panel=self.rspackChunkskyward_panel||[]).push([["style_index_js"],{24(r,e,a){var o=a(25),t=a.n(o),s=a(26),n=a.n(s),i=a(27),d=a(28),l=n()(t());l.i(i.A),l.i(d.A),l.push([r.id,`
`,""]),a.d(e,{},{A:l})},28(r,e,a){var o=a(25),t=a.n(o),s=a(26),n=(a.n(s))()(t());n.push([r.id,`/* Style of the panel, of its tabs and of the status bar item, with JupyterLab's own variables. */

.skyward-Panel {
  min-width: 240px;
  overflow: hidden auto;
}

.skyward-Panel-body {
  position: relative;
  padding: 8px 10px 16px;
  container-type: inline-size;
  line-height: 1.35;
}

.skyward-Icon {
  display: inline-flex;
  width: 16px;
  height: 16px;
}

/* Text that is cut off where there is no room. */

.skyward-Kernel,
.skyward-Failure > pre,
.skyward-Volume-mount,
.skyward-Volume-source > span:first-child,
.skyward-VolumeNode-text,
.skyward-Task-name,
.skyward-Task-yields {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.skyward-Head {
  display: flex;
  align-items: center;
  justify-content: space-between;
}

.skyward-Panel h2 {
  margin: 0;
  font-size: var(--jp-ui-font-size0);
  letter-spacing: 0.06em;
  text-transform: uppercase;
}

.skyward-ScreenReader {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
}

.skyward-Disconnected p + p {
  margin-top: 4px;
}

.skyward-Yields {
  padding: 4px 0 0;
  color: var(--jp-ui-font-color2);
}

.skyward-Kernel {
  color: var(--jp-ui-font-color2);
}

.skyward-Placeholder {
  padding: 16px 0 8px;
}

.skyward-Placeholder > * + * {
  margin-top: 8px;
}

.skyward-Placeholder pre {
  margin: 8px 0 0;
  padding: 8px;
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  user-select: text;
}

.skyward-mod-stale {
  opacity: 0.6;
}

/* Volumes. */

.skyward-Volume {
  padding: 4px 0;
}

.skyward-Volume + .skyward-Volume {
  border-top: 1px solid var(--jp-border-color3);
}

.skyward-Volume-head,
.skyward-Volume-source,
.skyward-Volume-fetched,
.skyward-VolumeNode {
  display: flex;
  gap: 8px;
  align-items: center;
  min-width: 0;
}

.skyward-Volume-head {
  width: 100%;
}

.skyward-Volume-head:hover {
  background: var(--jp-layout-color2);
}

.skyward-Volume-head::before {
  flex: none;
  width: 6px;
  content: '▸';
}

.skyward-Volume-head[aria-expanded='true']::before {
  content: '▾';
}

.skyward-Volume-mount {
  flex: 1;
  min-width: 40px;
  font-weight: 600;
}

.skyward-Volume-head > .skyward-State {
  flex: 0 1 auto;
  overflow: hidden;
  text-overflow: ellipsis;
}

.skyward-Volume > p {
  padding-left: 14px;
}

.skyward-Volume-source,
.skyward-Volume-fetched {
  color: var(--jp-ui-font-color2);
}

.skyward-Volume-source > span:last-child {
  flex: none;
}

.skyward-Volume-fetched > span:first-child {
  flex: 1;
}

.skyward-Volume-reason {
  color: var(--jp-error-color1);
  overflow-wrap: anywhere;
}

.skyward-VolumeNode {
  flex: 1;
  padding-left: 14px;
}

.skyward-VolumeNode-rank {
  flex: none;
  min-width: 52px;
}

.skyward-VolumeNode-text {
  flex: 1;
  min-width: 0;
  color: var(--jp-ui-font-color2);
}

/* Notices. */

.skyward-Notice {
  display: flex;
  gap: 6px;
  justify-content: space-between;
  margin-top: 6px;
  padding: 6px 8px;
  border-left: 3px solid var(--jp-info-color1);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
}

.skyward-Notice.skyward-mod-error {
  border-left-color: var(--jp-error-color1);
}

.skyward-Notice button {
  align-self: start;
}

.skyward-Buttons,
.skyward-Form-buttons,
.skyward-Orphan-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  margin-top: 12px;
}

.skyward-Pool.skyward-Orphan {
  border-style: dashed;
  border-color: var(--jp-warn-color1);
}

.skyward-Equivalent {
  color: var(--jp-ui-font-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
  user-select: text;
}

/* Pools and nodes that did not come up. */

.skyward-Pool.skyward-FailedPool {
  border-color: var(--jp-error-color1);
}

.skyward-FailedPool > pre {
  max-height: 126px;
  margin: 4px 0;
  overflow: auto;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  user-select: text;
}

.skyward-Failure {
  margin: 4px 0;
  padding: 4px 8px 6px;
  border-left: 3px solid var(--jp-error-color1);
  background: var(--jp-layout-color2);
}

.skyward-Failure-head,
.skyward-Failure-foot {
  display: flex;
  flex-wrap: wrap;
  gap: 0 8px;
  justify-content: space-between;
}

.skyward-Failure-phase {
  color: var(--jp-ui-font-color2);
}

.skyward-Failure-reason {
  overflow-wrap: anywhere;
}

.skyward-Failure > pre {
  margin: 4px 0;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  user-select: text;
  white-space: pre;
}

.skyward-StartLog {
  min-height: 180px; /* below a notebook it would have none */
  display: flex;
  background: var(--jp-layout-color0);
}

.skyward-StartLog > pre {
  flex: 1;
  margin: 0;
  padding: 8px 12px;
  overflow: auto;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
  white-space: pre-wrap;
  overflow-wrap: anywhere;
  user-select: text;
}

/* Tasks. */

.skyward-Task {
  display: flex;
  flex: 1;
  gap: 5px;
  align-items: center;
  min-width: 0;
}

.skyward-Task-cell {
  flex: none;
  min-width: 24px;
  color: var(--jp-content-link-color, var(--jp-brand-color1));
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
}

.skyward-Task-cell.skyward-mod-former {
  text-decoration: underline dotted;
}

.skyward-Task-cell:disabled {
  color: var(--jp-ui-font-color2);
}

.skyward-Task-name {
  flex: 1;
  min-width: 24px;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
}

.skyward-Task-yields {
  color: var(--jp-ui-font-color2);
}

.skyward-Task-elapsed {
  flex: none;
  min-width: 36px;
  text-align: right;
}

.skyward-Task-stops {
  display: flex;
  flex: none;
  justify-content: flex-end;
}

.skyward-Cost-cost {
  flex: none;
  min-width: 60px;
  text-align: right;
}

.skyward-Cost-rest {
  display: flex;
  justify-content: space-between;
  line-height: 24px;
  color: var(--jp-ui-font-color2);
}

@container (max-width: 280px) {
  .skyward-Task {
    gap: 3px;
  }

  .skyward-Task-yields {
    display: none;
  }

  .skyward-Task .skyward-IconButton {
    width: 18px;
  }
}

/* Streams. */

.skyward-Output {
  max-height: 180px;
  margin: 4px 0 0;
  padding: 4px 6px;
  overflow: auto;
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  user-select: text;
}

.skyward-Output > .skyward-mod-stderr {
  color: var(--jp-error-color1);
}

.skyward-Output-from {
  display: inline-block;
  min-width: 40px;
  color: var(--jp-ui-font-color2);
}

.skyward-Source {
  display: flex;
  gap: 4px;
  align-items: center;
  padding: 4px 0 0;
  color: var(--jp-ui-font-color2);
}

/* The form of a new pool. */

.skyward-Form {
  margin-top: 12px;
  padding: 8px;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
}

.skyward-Form-field {
  display: grid;
  grid-template-columns: 92px minmax(0, 1fr);
  gap: 8px;
  align-items: center;
  margin-bottom: 4px;
}

.skyward-Form-field .jp-InputGroup input,
.skyward-Form-field .jp-HTMLSelect select {
  height: 24px;
}

.skyward-Form-field .jp-HTMLSelect select {
  width: 100%; /* the arrow is at the right end of the room */
  border: 1px solid var(--jp-input-border-color);
}

.skyward-Form-field.skyward-mod-wrong :is(input, select) {
  border-color: var(--jp-error-color1);
}

.skyward-Form-wrong {
  white-space: pre-line;
  max-height: 12em;
  overflow-y: auto;
  margin-bottom: 6px;
  color: var(--jp-error-color1);
  overflow-wrap: anywhere;
}

.skyward-Form-reason {
  display: block;
  margin: 0 0 8px;
  max-height: 126px;
  overflow: auto;
  white-space: pre-line;
}

.skyward-Form summary {
  padding: 2px 0 6px;
  cursor: pointer;
}

.skyward-Price {
  margin: 6px 0 0;
  padding: 6px 8px;
  border-left: 3px solid var(--jp-brand-color1);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
  white-space: pre-line;
}

.skyward-Price.skyward-mod-none {
  border-left-color: var(--jp-warn-color1);
}

.skyward-Price-offer {
  color: var(--jp-ui-font-color2);
}

.skyward-Form-line {
  display: block;
  margin-top: 6px;
  padding: 6px 8px;
  background: var(--jp-layout-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
  user-select: text;
}

.skyward-Status {
  height: 24px;
  padding: 0 6px;
  line-height: 24px;
  border: 0;
  background: none;
  color: inherit;
  font: inherit;
  font-variant-numeric: tabular-nums;
  cursor: pointer;
}
`,""]),a.d(e,{},{A:n})},27(r,e,a){var o=a(25),t=a.n(o),s=a(26),n=(a.n(s))()(t());n.push([r.id,`/*
 * Style of the components that the panel and the widget share. Colours and fonts are those of the JupyterLab theme, else
 * of the VS Code theme, else plain ones; buttons and inputs have the classes that JupyterLab styles.
 */

.skyward-Root {
  --sky-back: var(--jp-layout-color1, var(--vscode-editor-background, #fff));
  --sky-raised: var(--jp-layout-color2, rgb(128 128 128 / 12%));
  --sky-track: var(--jp-layout-color3, rgb(128 128 128 / 25%));
  --sky-line: var(--jp-border-color2, rgb(128 128 128 / 35%));
  --sky-edge: var(--jp-border-color1, rgb(128 128 128 / 60%));
  --sky-text: var(--jp-ui-font-color1, var(--vscode-editor-foreground, #212121));
  --sky-quiet: var(--jp-ui-font-color2, var(--vscode-descriptionForeground, #616161));
  --sky-brand: var(--jp-brand-color1, #1976d2);
  --sky-link: var(--jp-content-link-color, var(--sky-brand));
  --sky-good: var(--jp-success-color1, #388e3c);
  --sky-busy: var(--jp-warn-color1, #e65100);
  --sky-bad: var(--jp-error-color1, #d32f2f);
  --sky-size: var(--jp-ui-font-size1, 13px);
  --sky-small: var(--jp-ui-font-size0, 11px);
  --sky-font: var(--jp-ui-font-family, system-ui, sans-serif);
  --sky-code: var(--jp-code-font-family, monospace);
  --sky-radius: var(--jp-border-radius, 3px);

  background: var(--sky-back);
  color: var(--sky-text);
  font-family: var(--sky-font);
  font-size: var(--sky-size);
  font-variant-numeric: tabular-nums;
}

/* Without specificity, so that each class below prevails, and JupyterLab's own rules for buttons. */

:where(.skyward-Root) :where(p, h3, ul, dl, dd, figure) {
  margin: 0;
  padding: 0;
}

:where(.skyward-Root) :where(ul) {
  list-style: none;
}

:where(.skyward-Root) :where(button:not(.jp-Button)) {
  padding: 0;
  border: 0;
  background: none;
  color: inherit;
  font: inherit;
  text-align: left;
}

:where(.skyward-Root) :where(button:enabled) {
  cursor: pointer;
}

.skyward-Root :is(button, input, select, summary, pre):focus-visible {
  outline: 1px solid var(--sky-brand);
  outline-offset: 1px;
}

/* Text that is cut off where there is no room. */

.skyward-Pool-name,
.skyward-Section-summary,
.skyward-Boot-kind,
.skyward-Node-machine,
.skyward-Details dd {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

/* Buttons and states. */

.skyward-Root .skyward-Button {
  height: 24px;
  border: 1px solid var(--sky-edge);
  line-height: 22px;
  letter-spacing: normal;
}

.skyward-Root .skyward-Button.jp-mod-accept {
  border-color: transparent;
}

.skyward-Root :is(.skyward-Button, .skyward-IconButton):disabled {
  opacity: 0.5;
}

.skyward-Root .skyward-IconButton {
  flex: none;
  width: 22px;
  min-width: 0;
  height: 22px;
  min-height: 0;
  padding: 0;
}

.skyward-Root h3 {
  font-size: var(--sky-size);
  line-height: 24px;
}

.skyward-Empty {
  padding: 4px 0;
  color: var(--sky-quiet);
}

.skyward-State {
  flex: none;
  color: var(--sky-quiet);
  white-space: nowrap;
}

.skyward-State.skyward-mod-good > span {
  color: var(--sky-good);
}

.skyward-State.skyward-mod-busy > span {
  color: var(--sky-busy);
}

.skyward-State.skyward-mod-bad,
.skyward-State.skyward-mod-bad > span {
  color: var(--sky-bad);
}

.skyward-Pool {
  margin-top: 8px;
  padding: 6px 8px 8px;
  border: 1px solid var(--sky-line);
  border-radius: var(--sky-radius);
}

.skyward-Pool.skyward-mod-selected {
  border-color: var(--sky-edge);
  background: var(--sky-back);
  box-shadow: inset 3px 0 var(--sky-brand);
}

.skyward-Pool > header {
  display: flex;
  gap: 6px;
  align-items: center;
}

.skyward-Pool-name {
  flex: 1;
  font-weight: 600;
}

.skyward-Pool-line {
  color: var(--sky-quiet);
}

.skyward-Pool-money {
  display: flex;
  flex-wrap: wrap;
  gap: 0 12px;
}

.skyward-Pool-failure {
  color: var(--sky-bad);
  overflow-wrap: anywhere;
}

.skyward-Bounds {
  display: flex;
  gap: 4px;
  align-items: center;
  margin-top: 6px;
}

.skyward-Bounds > span {
  color: var(--sky-quiet);
}

.skyward-Root input.skyward-Bounds-number {
  flex: none;
  min-width: 36px;
  height: 22px;
  padding: 0 6px;
  font-size: inherit;
  text-align: right;
  appearance: textfield;
}

.skyward-Bounds-number[aria-invalid='true'] {
  border-color: var(--sky-bad);
}

.skyward-Bounds-wrong {
  color: var(--sky-bad);
}

.skyward-Bounds-number::-webkit-inner-spin-button {
  display: none;
}

.skyward-Bounds-slider {
  position: relative;
  flex: 1;
  min-width: 24px;
  height: 22px;
}

.skyward-Bounds-track {
  position: absolute;
  inset: 10px 7px auto;
  height: 2px;
  background: var(--sky-edge);
}

.skyward-Bounds-track > div {
  position: absolute;
  inset: 0;
  background: var(--sky-brand);
}

.skyward-Bounds-thumb {
  position: absolute;
  inset: 0;
  width: 100%;
  height: 22px;
  margin: 0;
  background: none;
  appearance: none;
  pointer-events: none;
}

.skyward-Bounds-thumb::-webkit-slider-thumb {
  width: 14px;
  height: 14px;
  border: 2px solid var(--sky-brand);
  border-radius: 50%;
  background: var(--sky-back);
  appearance: none;
  cursor: ew-resize;
  pointer-events: auto;
}

.skyward-Bounds-thumb::-moz-range-thumb {
  width: 10px;
  height: 10px;
  border: 2px solid var(--sky-brand);
  border-radius: 50%;
  background: var(--sky-back);
  cursor: ew-resize;
  pointer-events: auto;
}

.skyward-Link {
  color: var(--sky-link);
}

.skyward-Link:hover {
  text-decoration: underline;
}

.skyward-Section {
  container-type: inline-size;
  margin-top: 12px;
}

.skyward-Section-header {
  display: flex;
  gap: 6px;
  align-items: center;
  min-height: 24px;
  border-bottom: 1px solid var(--sky-line);
}

.skyward-Section-fold {
  font-weight: 600;
  white-space: nowrap;
}

.skyward-Section-fold::before {
  display: inline-block;
  width: 14px;
  content: '▾';
}

.skyward-Section-fold[aria-expanded='false']::before {
  content: '▸';
}

.skyward-Section-summary {
  flex: 1;
  color: var(--sky-quiet);
  text-align: right;
}

.skyward-LongList {
  overflow: hidden auto;
}

.skyward-LongList-news {
  padding: 2px 0;
}

.skyward-LongList-row {
  display: flex;
  align-items: stretch;
}

.skyward-LongList-row:hover {
  background: var(--sky-raised);
}

.skyward-Filter {
  padding: 4px 0;
  color: var(--sky-quiet);
}

.skyward-Root .skyward-Filter input {
  width: 100%;
  height: 24px;
  font-size: inherit;
}

.skyward-Node {
  display: flex;
  flex: 1;
  gap: 8px;
  align-items: center;
  min-width: 0;
}

.skyward-Node-rank {
  flex: none;
  min-width: 28px;
  text-align: right;
}

.skyward-Node-head {
  color: var(--sky-busy);
}

.skyward-Node .skyward-State {
  min-width: 68px;
}

.skyward-Node-slots {
  flex: none;
  min-width: 40px;
  text-align: right;
}

.skyward-Node-machine,
.skyward-Node-price {
  display: none;
  color: var(--sky-quiet);
}

.skyward-Node-machine {
  flex: 1;
}

@container (min-width: 360px) {
  .skyward-Node-machine,
  .skyward-Node-price {
    display: block;
  }

  .skyward-Node .skyward-Gauge {
    flex: none;
  }
}

.skyward-Boot {
  display: flex;
  flex: 1;
  gap: 6px;
  align-items: center;
  overflow: hidden;
  color: var(--sky-quiet);
  white-space: nowrap;
}

.skyward-Boot-elapsed {
  flex: none;
  min-width: 32px;
  color: var(--sky-text);
  text-align: right;
}

.skyward-Boot-usual {
  flex: none;
}

.skyward-Boot-kind {
  flex: 0 1 auto;
  min-width: 0;
}

.skyward-Boot > .skyward-Bar {
  margin-left: auto;
}

.skyward-Boot.skyward-mod-late > .skyward-Bar > span {
  background: var(--sky-busy);
}

.skyward-Gauge {
  display: flex;
  flex: 1;
  gap: 6px;
  align-items: center;
  justify-content: flex-end;
}

.skyward-Gauge-value {
  min-width: 36px;
  text-align: right;
}

.skyward-Bar {
  flex: 0 1 56px;
  min-width: 24px;
  height: 6px;
  overflow: hidden;
  border-radius: 3px;
  background: var(--sky-track);
}

.skyward-Gauge > .skyward-Bar {
  flex-basis: 56px;
  width: 56px;
}

.skyward-Bar > span {
  display: block;
  height: 100%;
  background: var(--sky-brand);
}

.skyward-Gauge-memory {
  flex: none;
  min-width: 44px;
  text-align: right;
}

.skyward-Details {
  padding: 2px 0 8px 28px;
}

.skyward-Details-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  margin-top: 6px;
}

.skyward-Details > dl,
.skyward-Decision > dl {
  display: grid;
  grid-template-columns: max-content minmax(0, 1fr);
  gap: 1px 10px;
  min-width: 0;
}

.skyward-Root dt {
  color: var(--sky-quiet);
}

.skyward-VolumeNotes {
  margin-top: 6px;
  overflow-wrap: anywhere;
}

.skyward-Chart {
  position: relative;
  padding: 6px 0 4px;
}

.skyward-Chart > svg {
  display: block;
  width: 100%;
  height: 60px;
  border-bottom: 1px solid var(--sky-line);
}

.skyward-Chart path {
  fill: none;
  stroke-width: 1.5;
  vector-effect: non-scaling-stroke;
}

.skyward-Chart path.skyward-Chart-queued {
  stroke: var(--sky-busy);
}

.skyward-Chart path.skyward-Chart-running {
  stroke: var(--sky-good);
}

.skyward-Chart path.skyward-Chart-desired {
  stroke: var(--sky-quiet);
  stroke-dasharray: 3 2;
}

.skyward-Chart path.skyward-Chart-current {
  stroke: var(--sky-brand);
}

.skyward-Chart-top {
  position: absolute;
  top: 9px;
  left: 0;
  padding-right: 3px;
  background: var(--sky-back);
  color: var(--sky-quiet);
  font-size: var(--sky-small);
}

.skyward-Chart > figcaption {
  display: flex;
  flex-wrap: wrap;
  gap: 0 9px;
  padding-top: 3px;
  color: var(--sky-quiet);
  font-size: var(--sky-small);
}

.skyward-Chart > figcaption svg {
  width: 10px;
  height: 4px;
  margin-right: 3px;
  vertical-align: middle;
}

.skyward-Chart > figcaption b {
  color: var(--sky-text);
  font-weight: 600;
}

.skyward-Decisions {
  max-height: 190px;
  overflow: hidden auto;
}

.skyward-Decision > summary {
  display: grid;
  grid-template-columns: max-content minmax(50px, max-content) minmax(0, 1fr);
  gap: 8px;
  padding: 2px 0;
  cursor: pointer;
}

.skyward-Decision > summary:hover {
  background: var(--sky-raised);
}

.skyward-Decision-at {
  color: var(--sky-quiet);
}

.skyward-Decision-change {
  font-weight: 600;
  white-space: nowrap;
}

.skyward-Decision > dl {
  padding: 2px 0 6px 16px;
}

/* Where it is narrow, what is least missed goes, and details begin further to the left. */

@container (max-width: 280px) {
  .skyward-Boot-kind {
    display: none;
  }

  .skyward-Node {
    gap: 6px;
  }

  .skyward-Node .skyward-State {
    min-width: 60px;
  }

  .skyward-Details {
    padding-left: 8px;
  }

  .skyward-Decision > summary {
    grid-template-columns: max-content minmax(0, 1fr);
    gap: 0 8px;
  }

  .skyward-Decision-reason {
    grid-column: 1 / -1;
  }
}
`,""]),a.d(e,{},{A:n})},26(r){r.exports=function(r){var e=[];return e.toString=function(){return this.map(function(e){var a="",o=void 0!==e[5];return e[4]&&(a+="@supports (".concat(e[4],") {")),e[2]&&(a+="@media ".concat(e[2]," {")),o&&(a+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),a+=r(e),o&&(a+="}"),e[2]&&(a+="}"),e[4]&&(a+="}"),a}).join("")},e.i=function(r,a,o,t,s){"string"==typeof r&&(r=[[null,r,void 0]]);var n={};if(o)for(var i=0;i<this.length;i++){var d=this[i][0];null!=d&&(n[d]=!0)}for(var l=0;l<r.length;l++){var p=[].concat(r[l]);o&&n[p[0]]||(void 0!==s&&(void 0===p[5]||(p[1]="@layer".concat(p[5].length>0?" ".concat(p[5]):""," {").concat(p[1],"}")),p[5]=s),a&&(p[2]&&(p[1]="@media ".concat(p[2]," {").concat(p[1],"}")),p[2]=a),t&&(p[4]?(p[1]="@supports (".concat(p[4],") {").concat(p[1],"}"),p[4]=t):p[4]="".concat(t)),e.push(p))}},e}},25(r){r.exports=function(r){return r[1]}},18(r){var e=[];function a(r){for(var a=-1,o=0;o<e.length;o++)if(e[o].identifier===r){a=o;break}return a}function o(r,o){for(var t={},s=[],n=0;n<r.length;n++){var i=r[n],d=o.base?i[0]+o.base:i[0],l=t[d]||0,p="".concat(d," ").concat(l);t[d]=l+1;var y=a(p),c={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==y)e[y].references++,e[y].updater(c);else{var w=function(r,e){var a=e.domAPI(e);return a.update(r),function(e){e?(e.css!==r.css||e.media!==r.media||e.sourceMap!==r.sourceMap||e.supports!==r.supports||e.layer!==r.layer)&&a.update(r=e):a.remove()}}(c,o);o.byIndex=n,e.splice(n,0,{identifier:p,updater:w,references:1})}s.push(p)}return s}r.exports=function(r,t){var s=o(r=r||[],t=t||{});return function(r){r=r||[];for(var n=0;n<s.length;n++){var i=a(s[n]);e[i].references--}for(var d=o(r,t),l=0;l<s.length;l++){var p=a(s[l]);0===e[p].references&&(e[p].updater(),e.splice(p,1))}s=d}}},20(r){var e={};r.exports=function(r,a){var o=function(r){if(void 0===e[r]){var a=document.querySelector(r);if(window.HTMLIFrameElement&&a instanceof window.HTMLIFrameElement)try{a=a.contentDocument.head}catch(r){a=null}e[r]=a}return e[r]}(r);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(a)}},22(r){r.exports=function(r){var e=document.createElement("style");return r.setAttributes(e,r.attributes),r.insert(e,r.options),e}},21(r,e,a){r.exports=function(r){var e=a.nc;e&&r.setAttribute("nonce",e)}},19(r){r.exports=function(r){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=r.insertStyleElement(r);return{update:function(a){var o,t,s;o="",a.supports&&(o+="@supports (".concat(a.supports,") {")),a.media&&(o+="@media ".concat(a.media," {")),(t=void 0!==a.layer)&&(o+="@layer".concat(a.layer.length>0?" ".concat(a.layer):""," {")),o+=a.css,t&&(o+="}"),a.media&&(o+="}"),a.supports&&(o+="}"),(s=a.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(s))))," */")),r.styleTagTransform(o,e,r.options)},remove:function(){var r;null===(r=e).parentNode||r.parentNode.removeChild(r)}}}},23(r){r.exports=function(r,e){if(e.styleSheet)e.styleSheet.cssText=r;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(r))}}},17(r,e,a){var o=a(18),t=a.n(o),s=a(19),n=a.n(s),i=a(20),d=a.n(i),l=a(21),p=a.n(l),y=a(22),c=a.n(y),w=a(23),k=a.n(w),u=a(24),f={};f.styleTagTransform=k(),f.setAttributes=p(),f.insert=d().bind(null,"head"),f.domAPI=n(),f.insertStyleElement=c(),t()(u.A,f),u.A&&u.A.locals&&u.A.locals}}]);