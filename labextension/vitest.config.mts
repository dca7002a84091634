import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts', 'test/**/*.test.tsx'],
    alias: { '@jupyterlab/ui-components': fileURLToPath(new URL('./test/ui-components.tsx', import.meta.url)) }
  }
});
