import { INodeTerminals, IPoolActions, IStartLogs } from '../tokens';

/** Services that the panel uses besides the pools. */
export interface PanelServices {
  actions: IPoolActions;
  logs: IStartLogs;
  terminals: INodeTerminals;
  /** Open the menu of the panel below its button. */
  openMenu: (button: HTMLElement) => void;
}
