import * as React from 'react';

import { equivalent } from '../model/equivalent';
import { FormField } from '../protocol';
import { Acting } from './pool';

/** The fields that are asked for first; the others are behind "More". */
const FIRST = ['--nodes', '--provider', '--gpu', '--allocation', '--budget'];

function Field(props: {
  field: FormField;
  value: string;
  onChange: (text: string) => void;
}): JSX.Element {
  const { field, value, onChange } = props;
  return (
    <label className="skyward-Form-field" title={field.help}>
      <span>{field.flag.replace(/^--/, '')}</span>
      {field.choices.length ? (
        <select
          value={value}
          onChange={event => onChange(event.currentTarget.value)}
        >
          <option value="" />
          {field.choices.map(choice => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      ) : (
        <input
          value={value}
          placeholder={field.metavar}
          onChange={event => onChange(event.currentTarget.value)}
        />
      )}
    </label>
  );
}

/** The form of a new pool: the options of `%sky up`, and the line that does the same. */
export function NewPool(
  props: Acting & {
    form: readonly FormField[];
    names: readonly string[];
    onClose: () => void;
  }
): JSX.Element {
  const { trans, form } = props;
  const [name, setName] = React.useState(
    props.names.includes('default') ? `pool-${props.names.length + 1}` : 'default'
  );
  const [options, setOptions] = React.useState<{ [flag: string]: string }>({});
  const wish = { kind: 'new-pool', name: name.trim(), options } as const;
  const line = equivalent(wish);
  const field = (each: FormField) => (
    <Field
      key={each.flag}
      field={each}
      value={options[each.flag] ?? ''}
      onChange={text => setOptions({ ...options, [each.flag]: text })}
    />
  );
  const open = () => {
    void props.send(wish);
    props.onClose();
  };
  return (
    <form
      className="skyward-Form"
      aria-label={trans.__('New pool')}
      onKeyDown={event => event.key === 'Escape' && props.onClose()}
      onSubmit={event => {
        event.preventDefault();
        open();
      }}
    >
      <label className="skyward-Form-field">
        <span>{trans.__('name')}</span>
        <input
          autoFocus
          value={name}
          onChange={event => setName(event.currentTarget.value)}
        />
      </label>
      {form.filter(each => FIRST.includes(each.flag)).map(field)}
      <details>
        <summary>{trans.__('More')}</summary>
        {form.filter(each => !FIRST.includes(each.flag)).map(field)}
      </details>
      <code className="skyward-Form-line">{line}</code>
      <div className="skyward-Form-buttons">
        <button type="submit" className="skyward-Button skyward-mod-main" disabled={!wish.name}>
          {trans.__('Open')}
        </button>
        <button
          type="button"
          className="skyward-Button"
          onClick={() => void navigator.clipboard?.writeText(line)}
        >
          {trans.__('Copy line')}
        </button>
        <button type="button" className="skyward-Button" onClick={props.onClose}>
          {trans.__('Cancel')}
        </button>
      </div>
    </form>
  );
}
