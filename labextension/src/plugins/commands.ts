/** Ids of the commands without arguments, which the palette and the menu of the panel offer. */
export const COMMANDS = {
  show: 'skyward:show-panel',
  newPool: 'skyward:new-pool',
  load: 'skyward:insert-load-ext',
  cell: 'skyward:insert-cell',
  help: 'skyward:insert-help',
  stopAll: 'skyward:stop-all'
} as const;
