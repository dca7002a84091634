import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

/** Id of the settings of all plugins: that of the side panel. */
export const SETTINGS_ID = 'skyward-panel:plugin';

/** Call `read` with the settings once they are loaded, and after each change. */
export function followSettings(
  app: JupyterFrontEnd,
  registry: ISettingRegistry | null,
  read: (settings: ISettingRegistry.ISettings) => void
): void {
  void app.restored
    .then(() => registry?.load(SETTINGS_ID))
    .then(settings => {
      if (settings) {
        settings.changed.connect(read);
        read(settings);
      }
    })
    .catch(error => console.warn('skyward: could not load the settings', error));
}
