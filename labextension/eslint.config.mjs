import js from '@eslint/js';
import reactHooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist', 'lib', 'node_modules', 'src/protocol.ts'] },
  js.configs.recommended,
  tseslint.configs.recommendedTypeChecked,
  reactHooks.configs['recommended-latest'],
  {
    languageOptions: {
      parserOptions: { project: './tsconfig.test.json', tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      // Lumino connects a signal to a method and its object: `signal.connect(this._onChange, this)`.
      '@typescript-eslint/unbound-method': 'off',
      '@typescript-eslint/consistent-type-assertions': ['error', { assertionStyle: 'never' }],
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      '@typescript-eslint/no-floating-promises': 'error'
    }
  },
  {
    // What the panel and the widget share knows neither of them, nor JupyterLab: see CONTRIBUTING.md.
    files: ['src/model/**', 'src/components/**', 'src/widget/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        { patterns: ['@jupyterlab/*', '@lumino/*', '**/panel/*', '**/plugins/*', '**/tokens', '**/kernel/link'] }
      ]
    }
  },
  {
    files: ['src/model/**'],
    rules: {
      'no-restricted-imports': [
        'error',
        { patterns: ['react', '@*/*', '**/components/*', '**/kernel/*', '**/panel/*', '**/plugins/*', '**/widget/*'] }
      ]
    }
  },
  {
    files: ['test/**'],
    // Tests write only the fields of a row that matter.
    rules: { '@typescript-eslint/consistent-type-assertions': 'off' }
  },
  {
    files: ['*.mjs', '*.mts', '*.js', 'style/*.js'],
    extends: [tseslint.configs.disableTypeChecked],
    rules: { '@typescript-eslint/no-require-imports': 'off', 'no-undef': 'off' }
  }
);
