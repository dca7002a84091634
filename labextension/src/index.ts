import { actions } from './plugins/actions';
import { palette } from './plugins/palette';
import { pools } from './plugins/pools';
import { sidePanel } from './plugins/sidepanel';
import { startLogs } from './plugins/startlogs';
import { statusItem } from './plugins/statusbar';
import { terminals } from './plugins/terminals';

export * from './tokens';

export default [pools, actions, terminals, startLogs, sidePanel, palette, statusItem];
