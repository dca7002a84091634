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
