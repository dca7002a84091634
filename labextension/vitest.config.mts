import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'panel',
          include: ['test/*.test.ts', 'test/*.test.tsx'],
          alias: { '@jupyterlab/ui-components': path('./test/ui-components.tsx') }
        }
      },
      {
        test: {
          name: 'widget',
          include: ['test/widget/*.test.ts'],
          environment: 'happy-dom',
          alias: {
            // As in the build of the widget: see package.json.
            'react-dom': 'preact/compat',
            react: 'preact/compat',
            // Its main file is a CommonJS module, whose imports have no aliases.
            'react-window': path('./node_modules/react-window/dist/react-window.js')
          },
          server: { deps: { inline: [/react-window/] } }
        }
      }
    ]
  }
});
