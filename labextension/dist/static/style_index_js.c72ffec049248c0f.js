"use strict";(self.rspackChunkskyward_panel=self.rspackChunkskyward_panel||[]).push([["style_index_js"],{21(r,o,a){var e=a(22),t=a.n(e),n=a(23),i=(a.n(n))()(t());i.push([r.id,`/* Only JupyterLab's own variables for colour, font and spacing, so that every theme works. */

.skyward-Panel {
  min-width: 240px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
  font-variant-numeric: tabular-nums;
}

.skyward-Panel-body {
  position: relative;
  padding: 8px 10px 16px;
  container-type: inline-size;
  line-height: 1.35;
}

.skyward-Panel p,
.skyward-Panel h3,
.skyward-Panel ul,
.skyward-Panel dl,
.skyward-Panel dd,
.skyward-Panel figure {
  margin: 0;
  padding: 0;
}

.skyward-Panel h3 {
  font-size: var(--jp-ui-font-size1);
  line-height: 24px;
}

.skyward-Panel ul {
  list-style: none;
}

.skyward-Panel button {
  font: inherit;
  color: inherit;
  cursor: pointer;
}

.skyward-Panel button:disabled {
  cursor: default;
}

.skyward-Panel button:focus-visible,
.skyward-Panel input:focus-visible,
.skyward-Panel select:focus-visible,
.skyward-Panel summary:focus-visible,
.skyward-Panel pre:focus-visible {
  outline: 1px solid var(--jp-brand-color1);
  outline-offset: 1px;
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

.skyward-Unseen {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
}

.skyward-Lost p + p {
  margin-top: 4px;
}

.skyward-Yields {
  padding: 4px 0 0 !important;
  color: var(--jp-ui-font-color2);
}

.skyward-Where {
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  text-overflow: ellipsis;
  white-space: nowrap;
}

.skyward-Empty {
  padding: 4px 0;
  color: var(--jp-ui-font-color2);
}

.skyward-Nothing {
  padding: 16px 0 8px;
}

.skyward-Nothing > * + * {
  margin-top: 8px;
}

.skyward-Nothing pre {
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

/* Notices. */

.skyward-Notice {
  display: flex;
  gap: 6px;
  justify-content: space-between;
  margin-top: 6px !important;
  padding: 6px 8px !important;
  border-left: 3px solid var(--jp-info-color1);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
}

.skyward-Notice.skyward-mod-error {
  border-left-color: var(--jp-error-color1);
}

.skyward-Notice button {
  align-self: start;
  padding: 0 2px;
  border: 0;
  background: none;
}

/* Buttons and states. */

.skyward-Button {
  padding: 3px 8px;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
}

.skyward-Button:hover:not(:disabled) {
  background: var(--jp-layout-color2);
}

.skyward-Panel .skyward-Button.skyward-mod-main {
  border-color: var(--jp-brand-color1);
  background: var(--jp-brand-color1);
  color: var(--jp-ui-inverse-font-color1);
}

.skyward-Button:disabled {
  opacity: 0.5;
}

.skyward-Buttons,
.skyward-Form-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  margin-top: 12px;
}

.skyward-SignButton {
  display: inline-flex;
  flex: none;
  align-items: center;
  justify-content: center;
  width: 22px;
  height: 22px;
  padding: 0;
  border: 0;
  border-radius: var(--jp-border-radius);
  background: none;
}

.skyward-SignButton:hover:not(:disabled) {
  background: var(--jp-layout-color3);
}

.skyward-SignButton:disabled {
  opacity: 0.4;
}

.skyward-State {
  flex: none;
  color: var(--jp-ui-font-color2);
  white-space: nowrap;
}

.skyward-State.skyward-mod-good > span {
  color: var(--jp-success-color1);
}

.skyward-State.skyward-mod-busy > span {
  color: var(--jp-warn-color1);
}

.skyward-State.skyward-mod-bad,
.skyward-State.skyward-mod-bad > span {
  color: var(--jp-error-color1);
}

/* A pool. */

.skyward-Pool {
  margin-top: 8px;
  padding: 6px 8px 8px;
  border: 1px solid var(--jp-border-color2);
  border-radius: var(--jp-border-radius);
}

.skyward-Pool.skyward-mod-selected {
  border-color: var(--jp-border-color1);
  background: var(--jp-layout-color1);
  box-shadow: inset 3px 0 var(--jp-brand-color1);
}

.skyward-Pool > header {
  display: flex;
  gap: 6px;
  align-items: center;
}

.skyward-Pool-name {
  flex: 1;
  overflow: hidden;
  padding: 0;
  border: 0;
  background: none;
  font-weight: 600 !important;
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.skyward-Pool-line {
  color: var(--jp-ui-font-color2);
}

.skyward-Pool-money {
  display: flex;
  flex-wrap: wrap;
  gap: 0 12px;
}

.skyward-Pool-failure {
  color: var(--jp-error-color1);
  overflow-wrap: anywhere;
}

.skyward-Bounds {
  display: flex;
  gap: 4px;
  align-items: center;
  margin-top: 6px;
}

.skyward-Bounds > label {
  color: var(--jp-ui-font-color2);
}

.skyward-Bounds-number {
  flex: none;
  box-sizing: border-box;
  min-width: 36px;
  height: 22px;
  padding: 0 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: inherit;
  font: inherit;
  text-align: right;
  appearance: textfield;
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
  background: var(--jp-border-color1);
}

.skyward-Bounds-track > div {
  position: absolute;
  inset: 0;
  background: var(--jp-brand-color1);
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
  border: 2px solid var(--jp-brand-color1);
  border-radius: 50%;
  background: var(--jp-layout-color1);
  appearance: none;
  cursor: ew-resize;
  pointer-events: auto;
}

.skyward-Bounds-thumb::-moz-range-thumb {
  width: 10px;
  height: 10px;
  border: 2px solid var(--jp-brand-color1);
  border-radius: 50%;
  background: var(--jp-layout-color1);
  cursor: ew-resize;
  pointer-events: auto;
}

.skyward-Orphan {
  border-style: dashed;
  border-color: var(--jp-warn-color1);
}

.skyward-Same {
  color: var(--jp-ui-font-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
  user-select: text;
}

.skyward-Link {
  padding: 0;
  border: 0;
  background: none;
  color: var(--jp-content-link-color, var(--jp-brand-color1)) !important;
  text-align: left;
}

.skyward-Link:hover {
  text-decoration: underline;
}

/* Sections and long lists. */

.skyward-Section {
  margin-top: 12px;
}

.skyward-Section-header {
  display: flex;
  gap: 6px;
  align-items: center;
  min-height: 24px;
  border-bottom: 1px solid var(--jp-border-color2);
}

.skyward-Section-fold {
  padding: 0;
  border: 0;
  background: none;
  font-weight: 600 !important;
  white-space: nowrap;
}

.skyward-Icon {
  display: inline-flex;
  flex: none;
  align-items: center;
  justify-content: center;
  width: 16px;
  height: 16px;
}

.skyward-Section-fold {
  display: flex;
  gap: 2px;
  align-items: center;
  margin-left: -4px;
}

.skyward-Section-summary {
  flex: 1;
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  text-align: right;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.skyward-LongList {
  overflow: hidden auto;
}

.skyward-LongList > ul {
  box-sizing: border-box;
}

.skyward-LongList-row {
  display: flex;
  align-items: stretch;
}

.skyward-LongList-row:hover {
  background: var(--jp-layout-color2);
}

.skyward-Filter {
  padding: 4px 0;
  color: var(--jp-ui-font-color2);
}

.skyward-Filter input {
  box-sizing: border-box;
  width: 100%;
  height: 24px;
  padding: 0 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font: inherit;
}

/* Nodes. */

.skyward-Node {
  display: flex;
  flex: 1;
  gap: 8px;
  align-items: center;
  min-width: 0;
  padding: 0;
  border: 0;
  background: none;
  text-align: left;
}

.skyward-Node-rank {
  flex: none;
  min-width: 28px;
  text-align: right;
}

.skyward-Node-head {
  color: var(--jp-warn-color1);
}

.skyward-Node .skyward-State {
  min-width: 68px;
}

.skyward-Node-slots {
  flex: none;
  min-width: 40px;
  text-align: right;
}

.skyward-Boot {
  display: flex;
  flex: 1;
  gap: 6px;
  align-items: center;
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  white-space: nowrap;
}

.skyward-Boot-elapsed {
  flex: none;
  min-width: 32px;
  color: var(--jp-ui-font-color1);
  text-align: right;
}

.skyward-Boot-usual {
  flex: none;
}

.skyward-Boot-kind {
  flex: 0 1 auto;
  overflow: hidden;
  min-width: 0;
  text-overflow: ellipsis;
}

.skyward-Boot > .skyward-Gauge-bar {
  margin-left: auto;
}

.skyward-Boot.skyward-mod-late > .skyward-Gauge-bar > span {
  background: var(--jp-warn-color1);
}

/* Nodes that did not come up. */

.skyward-Trouble {
  margin: 4px 0;
  padding: 4px 8px 6px;
  border-left: 3px solid var(--jp-error-color1);
  background: var(--jp-layout-color2);
}

.skyward-Trouble-head,
.skyward-Trouble-foot {
  display: flex;
  flex-wrap: wrap;
  gap: 0 8px;
  justify-content: space-between;
}

.skyward-Trouble-phase {
  color: var(--jp-ui-font-color2);
}

.skyward-Trouble-reason {
  overflow-wrap: anywhere;
}

.skyward-Trouble > pre {
  margin: 4px 0;
  overflow: hidden;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  text-overflow: ellipsis;
  user-select: text;
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

.skyward-Gauge-bar {
  flex: 0 1 56px;
  min-width: 24px;
  height: 6px;
  overflow: hidden;
  border-radius: 3px;
  background: var(--jp-layout-color3);
}

.skyward-Gauge-memory {
  flex: none;
  min-width: 44px;
  text-align: right;
}

.skyward-Gauge-bar > span {
  display: block;
  height: 100%;
  background: var(--jp-brand-color1);
}

.skyward-Details {
  padding: 2px 0 8px 28px;
}

.skyward-Details-buttons,
.skyward-Orphan-buttons {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
  align-items: center;
  margin-top: 6px;
}

.skyward-Panel .skyward-Details-buttons > .skyward-Button {
  padding: 2px 7px;
  font-size: var(--jp-ui-font-size0);
}

.skyward-Details > dl,
.skyward-Decision > dl {
  display: grid;
  grid-template-columns: max-content minmax(0, 1fr);
  gap: 1px 10px;
  min-width: 0;
}

.skyward-Panel dt {
  color: var(--jp-ui-font-color2);
}

.skyward-Panel dd {
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

/* Decisions. */

.skyward-Chart {
  position: relative;
  padding: 6px 0 4px !important;
}

.skyward-Chart > svg {
  display: block;
  width: 100%;
  height: 60px;
  border-bottom: 1px solid var(--jp-border-color2);
}

.skyward-Chart path {
  fill: none;
  stroke-width: 1.5;
  vector-effect: non-scaling-stroke;
}

.skyward-Chart path.skyward-Chart-queued {
  stroke: var(--jp-warn-color1);
}

.skyward-Chart path.skyward-Chart-running {
  stroke: var(--jp-success-color1);
}

.skyward-Chart path.skyward-Chart-desired {
  stroke: var(--jp-ui-font-color2);
  stroke-dasharray: 3 2;
}

.skyward-Chart path.skyward-Chart-current {
  stroke: var(--jp-brand-color1);
}

.skyward-Chart-top {
  position: absolute;
  top: 9px;
  left: 0;
  padding-right: 3px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.skyward-Chart > figcaption {
  display: flex;
  flex-wrap: wrap;
  gap: 0 9px;
  padding-top: 3px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.skyward-Chart > figcaption svg {
  width: 10px;
  height: 4px;
  margin-right: 3px;
  vertical-align: middle;
}

.skyward-Chart > figcaption b {
  color: var(--jp-ui-font-color1);
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
  background: var(--jp-layout-color2);
}

.skyward-Decision-at {
  color: var(--jp-ui-font-color2);
}

.skyward-Decision-change {
  font-weight: 600;
  white-space: nowrap;
}

.skyward-Decision > dl {
  padding: 2px 0 6px 16px;
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
  padding: 0;
  border: 0;
  background: none;
  color: var(--jp-content-link-color, var(--jp-brand-color1)) !important;
  font-family: var(--jp-code-font-family) !important;
  font-size: var(--jp-ui-font-size0) !important;
  text-align: left;
}

.skyward-Task-cell.skyward-mod-former {
  text-decoration: underline dotted;
}

.skyward-Task-cell:disabled {
  color: var(--jp-ui-font-color2) !important;
}

.skyward-Panel .skyward-Task-name {
  flex: 1;
  overflow: hidden;
  min-width: 24px;
  padding: 0;
  border: 0;
  background: none;
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-ui-font-size0);
  text-align: left;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.skyward-Task-yields {
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  text-overflow: ellipsis;
  white-space: nowrap;
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

.skyward-Money-cost {
  flex: none;
  min-width: 60px;
  text-align: right;
}

.skyward-Money-rest {
  display: flex;
  justify-content: space-between;
  line-height: 24px;
  color: var(--jp-ui-font-color2);
}

/* Where it is narrow, what is least missed goes, and details begin further to the left. */

@container (max-width: 280px) {
  .skyward-Boot-kind {
    display: none;
  }

  .skyward-Panel .skyward-Details {
    padding-left: 8px;
  }

  .skyward-Task-yields {
    display: none;
  }

  .skyward-Decision > summary {
    grid-template-columns: max-content minmax(0, 1fr);
    gap: 0 8px;
  }

  .skyward-Decision-reason {
    grid-column: 1 / -1;
  }

  .skyward-Task {
    gap: 3px;
  }

  .skyward-Task .skyward-SignButton {
    width: 18px;
  }

  .skyward-Node .skyward-State {
    min-width: 60px;
  }

  .skyward-Node {
    gap: 6px;
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
  padding: 4px 0 0 !important;
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

.skyward-Form-field input,
.skyward-Form-field select {
  box-sizing: border-box;
  width: 100%;
  height: 24px;
  padding: 0 6px;
  border: 1px solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font: inherit;
}

.skyward-Form summary {
  padding: 2px 0 6px;
  cursor: pointer;
}

.skyward-Price {
  margin: 6px 0 0 !important;
  padding: 6px 8px !important;
  border-left: 3px solid var(--jp-brand-color1);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
}

.skyward-Price.skyward-mod-none {
  border-left-color: var(--jp-warn-color1);
}

.skyward-Price-offer {
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  text-overflow: ellipsis;
  white-space: nowrap;
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
`,""]),a.d(o,{},{A:i})},23(r){r.exports=function(r){var o=[];return o.toString=function(){return this.map(function(o){var a="",e=void 0!==o[5];return o[4]&&(a+="@supports (".concat(o[4],") {")),o[2]&&(a+="@media ".concat(o[2]," {")),e&&(a+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),a+=r(o),e&&(a+="}"),o[2]&&(a+="}"),o[4]&&(a+="}"),a}).join("")},o.i=function(r,a,e,t,n){"string"==typeof r&&(r=[[null,r,void 0]]);var i={};if(e)for(var d=0;d<this.length;d++){var s=this[d][0];null!=s&&(i[s]=!0)}for(var l=0;l<r.length;l++){var p=[].concat(r[l]);e&&i[p[0]]||(void 0!==n&&(void 0===p[5]||(p[1]="@layer".concat(p[5].length>0?" ".concat(p[5]):""," {").concat(p[1],"}")),p[5]=n),a&&(p[2]&&(p[1]="@media ".concat(p[2]," {").concat(p[1],"}")),p[2]=a),t&&(p[4]?(p[1]="@supports (".concat(p[4],") {").concat(p[1],"}"),p[4]=t):p[4]="".concat(t)),o.push(p))}},o}},22(r){r.exports=function(r){return r[1]}},15(r){var o=[];function a(r){for(var a=-1,e=0;e<o.length;e++)if(o[e].identifier===r){a=e;break}return a}function e(r,e){for(var t={},n=[],i=0;i<r.length;i++){var d=r[i],s=e.base?d[0]+e.base:d[0],l=t[s]||0,p="".concat(s," ").concat(l);t[s]=l+1;var c=a(p),u={css:d[1],media:d[2],sourceMap:d[3],supports:d[4],layer:d[5]};if(-1!==c)o[c].references++,o[c].updater(u);else{var w=function(r,o){var a=o.domAPI(o);return a.update(r),function(o){o?(o.css!==r.css||o.media!==r.media||o.sourceMap!==r.sourceMap||o.supports!==r.supports||o.layer!==r.layer)&&a.update(r=o):a.remove()}}(u,e);e.byIndex=i,o.splice(i,0,{identifier:p,updater:w,references:1})}n.push(p)}return n}r.exports=function(r,t){var n=e(r=r||[],t=t||{});return function(r){r=r||[];for(var i=0;i<n.length;i++){var d=a(n[i]);o[d].references--}for(var s=e(r,t),l=0;l<n.length;l++){var p=a(n[l]);0===o[p].references&&(o[p].updater(),o.splice(p,1))}n=s}}},17(r){var o={};r.exports=function(r,a){var e=function(r){if(void 0===o[r]){var a=document.querySelector(r);if(window.HTMLIFrameElement&&a instanceof window.HTMLIFrameElement)try{a=a.contentDocument.head}catch(r){a=null}o[r]=a}return o[r]}(r);if(!e)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");e.appendChild(a)}},19(r){r.exports=function(r){var o=document.createElement("style");return r.setAttributes(o,r.attributes),r.insert(o,r.options),o}},18(r,o,a){r.exports=function(r){var o=a.nc;o&&r.setAttribute("nonce",o)}},16(r){r.exports=function(r){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=r.insertStyleElement(r);return{update:function(a){var e,t,n;e="",a.supports&&(e+="@supports (".concat(a.supports,") {")),a.media&&(e+="@media ".concat(a.media," {")),(t=void 0!==a.layer)&&(e+="@layer".concat(a.layer.length>0?" ".concat(a.layer):""," {")),e+=a.css,t&&(e+="}"),a.media&&(e+="}"),a.supports&&(e+="}"),(n=a.sourceMap)&&"u">typeof btoa&&(e+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),r.styleTagTransform(e,o,r.options)},remove:function(){var r;null===(r=o).parentNode||r.parentNode.removeChild(r)}}}},20(r){r.exports=function(r,o){if(o.styleSheet)o.styleSheet.cssText=r;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(r))}}},14(r,o,a){var e=a(15),t=a.n(e),n=a(16),i=a.n(n),d=a(17),s=a.n(d),l=a(18),p=a.n(l),c=a(19),u=a.n(c),w=a(20),y=a.n(w),f=a(21),x={};x.styleTagTransform=y(),x.setAttributes=p(),x.insert=s().bind(null,"head"),x.domAPI=i(),x.insertStyleElement=u(),t()(f.A,x),f.A&&f.A.locals&&f.A.locals}}]);