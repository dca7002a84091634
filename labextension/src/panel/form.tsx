import { HTMLSelect, InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Button } from '../components/button';
import { equivalent, Options, run } from '../model/equivalent';
import { money } from '../model/format';
import { Translation } from '../model/translation';
import { budgetDuration, perHour } from '../model/price';
import { FormField, Price } from '../protocol';
import { Ask, PartProps } from './props';

/** The fields that are always shown; the others are under "More". */
const FIRST = ['--nodes', '--provider', '--gpu', '--allocation', '--budget', '--idle'];

function Field(props: { field: FormField; value: string; onChange: (text: string) => void }): JSX.Element {
  const { field, value, onChange } = props;
  const name = field.flag.replace(/^--/, '');
  return (
    <label className="skyward-Form-field" title={field.help}>
      <span>{name}</span>
      {field.choices.length ? (
        <HTMLSelect
          aria-label={name}
          options={['', ...field.choices]}
          value={value}
          onChange={event => onChange(event.currentTarget.value)}
        />
      ) : (
        <InputGroup
          aria-label={name}
          value={value}
          placeholder={field.metavar}
          onChange={event => onChange(event.currentTarget.value)}
        />
      )}
    </label>
  );
}

/** Milliseconds without a change after which the price is requested. */
const PAUSE = 350;
/** Options that do not affect the price, so that it is not requested again. */
const PRICE_INDEPENDENT = [
  '--budget',
  '--idle',
  '--ttl',
  '--pip',
  '--apt',
  '--env',
  '--include',
  '--exclude',
  '--python'
];

/** Return the price of a pool with these options: null if not known yet, or the reason why there is none. */
function usePrice(name: string, options: Options, ask: Ask): Price | string | null {
  const [price, setPrice] = React.useState<Price | string | null>(null);
  const wanted = Object.fromEntries(
    Object.entries(options).filter(([flag, text]) => text.trim() && !PRICE_INDEPENDENT.includes(flag))
  );
  const asked = JSON.stringify(wanted);
  React.useEffect(() => {
    if (!name) {
      return;
    }
    let over = false;
    const estimate = async () => {
      const reply = await ask({ kind: 'ask-price', name, options: wanted });
      if (!over) {
        setPrice(typeof reply === 'string' || reply.kind === 'price' ? reply : null);
      }
    };
    const timer = window.setTimeout(() => void estimate(), PAUSE);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `ask` and `wanted` are new at each render; `asked` tells whether `wanted` has changed
  }, [name, asked]);
  return price;
}

/** The estimated cost of the pool, before it is opened. */
function PriceLine(props: { price: Price | string | null; budget: string; trans: Translation }): JSX.Element {
  const { price, trans } = props;
  if (price === null || typeof price === 'string') {
    return (
      <p className={`skyward-Price${price ? ' skyward-mod-none' : ''}`}>
        {price === null ? trans.__('Loading the price…') : price || trans.__('No price: the kernel is busy.')}
      </p>
    );
  }
  const [first, ...others] = price.offers;
  const span = budgetDuration(price, props.budget);
  return (
    <div className="skyward-Price">
      <p>
        <b>{perHour(price)}</b>{' '}
        {price.min === price.max
          ? trans.__('for %1 nodes', price.max)
          : trans.__('for %1–%2 nodes', price.min, price.max)}
      </p>
      {first && (
        <p className="skyward-Price-offer" title={first.place}>
          {trans.__('%1 each', `${money(first.per_hour)}/h`)} · {first.place}
        </p>
      )}
      {span && <p>{trans.__('The budget lasts %1 with %2 nodes.', span, price.max)}</p>}
      {others.length > 0 && (
        <details>
          <summary>{trans.__('%1 other matching offers', others.length)}</summary>
          {others.map(offer => (
            <p key={offer.place} className="skyward-Price-offer" title={offer.place}>
              {trans.__('%1 each', `${money(offer.per_hour)}/h`)} · {offer.place}
            </p>
          ))}
        </details>
      )}
    </div>
  );
}

/** The form of a new pool: the options of `%sky up`, and the equivalent line. */
export function NewPool(
  props: PartProps & {
    ask: Ask;
    form: readonly FormField[];
    names: readonly string[];
    onClose: () => void;
  }
): JSX.Element {
  const { trans, form } = props;
  const [name, setName] = React.useState(
    props.names.includes('default') ? `pool-${props.names.length + 1}` : 'default'
  );
  const [options, setOptions] = React.useState<Options>({});
  const price = usePrice(name.trim(), options, props.ask);
  const request = run('up', { pool: name.trim(), options });
  const line = equivalent(request);
  const field = (each: FormField) => (
    <Field
      key={each.flag}
      field={each}
      value={options[each.flag] ?? ''}
      onChange={text => setOptions({ ...options, [each.flag]: text })}
    />
  );
  const open = () => {
    void props.send(request);
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
        <InputGroup autoFocus value={name} onChange={event => setName(event.currentTarget.value)} />
      </label>
      {form.filter(each => FIRST.includes(each.flag)).map(field)}
      <details>
        <summary>{trans.__('More')}</summary>
        {form.filter(each => !FIRST.includes(each.flag)).map(field)}
      </details>
      <PriceLine price={price} budget={options['--budget'] ?? ''} trans={trans} />
      <code className="skyward-Form-line">{line}</code>
      <div className="skyward-Form-buttons">
        <Button type="submit" main disabled={!request.arguments.pool}>
          {trans.__('Open')}
        </Button>
        <Button onClick={() => void navigator.clipboard?.writeText(line)}>{trans.__('Copy line')}</Button>
        <Button onClick={props.onClose}>{trans.__('Cancel')}</Button>
      </div>
    </form>
  );
}
