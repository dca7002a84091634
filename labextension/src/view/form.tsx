import * as React from 'react';

import { equivalent, Wish } from '../model/equivalent';
import { money } from '../model/format';
import { Reply } from '../model/link';
import { Words } from '../model/panel';
import { lasts, perHour } from '../model/price';
import { FormField, Price } from '../protocol';
import { Acting } from './pool';

/** The fields that are asked for first; the others are behind "More". */
const FIRST = ['--nodes', '--provider', '--gpu', '--allocation', '--budget', '--idle'];

function Field(props: {
  field: FormField;
  value: string;
  onChange: (text: string) => void;
}): JSX.Element {
  const { field, value, onChange } = props;
  const name = field.flag.replace(/^--/, '');
  return (
    <label className="skyward-Form-field" title={field.help}>
      <span>{name}</span>
      {field.choices.length ? (
        <select
          aria-label={name}
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
          aria-label={name}
          value={value}
          placeholder={field.metavar}
          onChange={event => onChange(event.currentTarget.value)}
        />
      )}
    </label>
  );
}

/** Milliseconds without a change after which the price is asked for. */
const PAUSE = 350;
/** Options that a price does not depend on, so that it is not asked for again. */
const PRICELESS = ['--budget', '--idle', '--ttl', '--pip', '--apt', '--env', '--include', '--exclude', '--python'];

type Options = { [flag: string]: string };

/** The price of a pool with these options: none yet, what it is, or why there is none. */
function usePrice(
  name: string,
  options: Options,
  ask: (wish: Wish) => Promise<Reply | string>
): Price | string | null {
  const [price, setPrice] = React.useState<Price | string | null>(null);
  const asked = JSON.stringify(
    Object.entries(options).filter(([flag, text]) => text.trim() && !PRICELESS.includes(flag))
  );
  React.useEffect(() => {
    if (!name) {
      return;
    }
    let over = false;
    const timer = window.setTimeout(async () => {
      const wanted = Object.fromEntries(JSON.parse(asked)) as Options;
      const reply = await ask({ kind: 'ask-price', name, options: wanted });
      if (!over) {
        setPrice(typeof reply === 'string' || reply.kind === 'price' ? reply : null);
      }
    }, PAUSE);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [name, asked]);
  return price;
}

/** What the pool would cost, before it is opened. */
function PriceLine(props: {
  price: Price | string | null;
  budget: string;
  trans: Words;
}): JSX.Element {
  const { price, trans } = props;
  if (price === null || typeof price === 'string') {
    return (
      <p className={`skyward-Price${price ? ' skyward-mod-none' : ''}`}>
        {price === null ? trans.__('Looking for the price…') : price || trans.__('No price: the kernel is busy.')}
      </p>
    );
  }
  const [first, ...others] = price.offers;
  const span = lasts(price, props.budget);
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
          <summary>{trans.__('%1 other offers that fit', others.length)}</summary>
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

/** The form of a new pool: the options of `%sky up`, and the line that does the same. */
export function NewPool(
  props: Acting & {
    ask: (wish: Wish) => Promise<Reply | string>;
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
      <PriceLine price={price} budget={options['--budget'] ?? ''} trans={trans} />
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
