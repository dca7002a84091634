import { HTMLSelect, InputGroup } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Button } from '../components/button';
import { equivalent, Options, run } from '../model/equivalent';
import { duration, money } from '../model/format';
import { Translation } from '../model/translation';
import { budgetDuration, perHour } from '../model/price';
import { FormField, OfferView, Price, RunRequest } from '../protocol';
import { Ask } from './props';

/** The fields that are always shown; the others are under "More". */
const FIRST = ['--nodes', '--provider', '--gpu', '--allocation', '--budget', '--idle'];

/** A pool that was not opened: its name, the texts of its options, and the reason. */
export interface RefusedPool {
  name: string;
  options: Options;
  reason: string;
}

/** A labelled input, and what is wrong with its value. */
function Row(props: { name: string; help?: string; wrong?: string; children: React.ReactNode }): JSX.Element {
  return (
    <>
      <label className={`skyward-Form-field${props.wrong ? ' skyward-mod-wrong' : ''}`} title={props.help}>
        <span>{props.name}</span>
        {props.children}
      </label>
      {props.wrong && (
        <p className="skyward-Form-wrong" role="alert">
          {props.wrong}
        </p>
      )}
    </>
  );
}

function Field(props: {
  field: FormField;
  value: string;
  wrong?: string;
  onChange: (text: string) => void;
}): JSX.Element {
  const { field, value, wrong, onChange } = props;
  const name = field.flag.replace(/^--/, '');
  return (
    <Row name={name} help={field.help} wrong={wrong}>
      {field.choices.length ? (
        <HTMLSelect
          aria-label={name}
          aria-invalid={Boolean(wrong)}
          options={['', ...field.choices]}
          value={value}
          onChange={event => onChange(event.currentTarget.value)}
        />
      ) : (
        <InputGroup
          aria-label={name}
          aria-invalid={Boolean(wrong)}
          value={value}
          placeholder={field.metavar}
          onChange={event => onChange(event.currentTarget.value)}
        />
      )}
    </Row>
  );
}

/** Milliseconds without a change after which the fields are checked, and the price is requested. */
const PAUSE = 350;
/** Options that do not affect the price, so that it is not requested again. */
const PRICE_INDEPENDENT = [
  '--budget',
  '--idle',
  '--ttl',
  '--plugin',
  '--pip',
  '--apt',
  '--env',
  '--include',
  '--exclude',
  '--python'
];

/** Return what is wrong with a new pool: sentences by flag, `name`, or empty if its options conflict. */
function useChecks(name: string, options: Options, ask: Ask): { [field: string]: string } {
  const [wrong, setWrong] = React.useState<{ [field: string]: string }>({});
  const asked = JSON.stringify([name, options]);
  React.useEffect(() => {
    let over = false;
    const check = async () => {
      const reply = await ask({ kind: 'ask-check', name, options });
      if (!over) {
        setWrong(typeof reply !== 'string' && reply.kind === 'checked' ? reply.wrong : {});
      }
    };
    const timer = window.setTimeout(() => void check(), PAUSE);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `ask` is new at each render; `asked` tells whether the rest has changed
  }, [asked]);
  return wrong;
}

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

/** An offer: the price of a node, its place and hardware, and its usual start. */
function OfferLine(props: { offer: OfferView; trans: Translation }): JSX.Element {
  const { offer, trans } = props;
  const parts = [trans.__('%1 each', `${money(offer.per_hour)}/h`), offer.place, offer.hardware];
  if (offer.start !== null) {
    parts.push(trans.__('starts in about %1', duration(offer.start)));
  }
  const text = parts.filter(Boolean).join(' · ');
  return <p className="skyward-Price-offer">{text}</p>;
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
          ? price.max === 1
            ? trans.__('for 1 node')
            : trans.__('for %1 nodes', price.max)
          : trans.__('for %1–%2 nodes', price.min, price.max)}
      </p>
      {first && <OfferLine offer={first} trans={trans} />}
      {span && (
        <p>
          {price.max === 1
            ? trans.__('The budget lasts %1 with 1 node.', span)
            : trans.__('The budget lasts %1 with %2 nodes.', span, price.max)}
        </p>
      )}
      {others.length > 0 && (
        <details>
          <summary>
            {others.length === 1
              ? trans.__('1 other matching offer')
              : trans.__('%1 other matching offers', others.length)}
          </summary>
          {others.map(offer => (
            <OfferLine key={offer.place} offer={offer} trans={trans} />
          ))}
        </details>
      )}
      {price.notes.map(note => (
        <p key={note}>{note}</p>
      ))}
    </div>
  );
}

/**
 * The form of a new pool: the options of `%sky up`, and the equivalent line. It is closed once the pool is listed; if
 * the pool is refused after that, `onRefused` gets what was typed.
 */
export function NewPool(props: {
  ask: Ask;
  form: readonly FormField[];
  names: readonly string[];
  /** The last pool that was refused, to begin with. */
  refused: RefusedPool | null;
  /** Send a command; return the reason if it was refused, else an empty text. */
  submit: (request: RunRequest) => Promise<string>;
  onRefused: (pool: RefusedPool) => void;
  onClose: () => void;
  trans: Translation;
}): JSX.Element {
  const { trans, form, names, onClose } = props;
  const [name, setName] = React.useState(
    props.refused?.name ?? (names.includes('default') ? `pool-${names.length + 1}` : 'default')
  );
  const [options, setOptions] = React.useState<Options>(props.refused?.options ?? {});
  const [reason, setReason] = React.useState(props.refused?.reason ?? '');
  const [isMoreOpen, setMoreOpen] = React.useState(() =>
    Object.entries(options).some(([flag, text]) => text && !FIRST.includes(flag))
  );
  /** The name of the pool that is being opened. */
  const [opening, setOpening] = React.useState('');
  const isMounted = React.useRef(true);
  React.useEffect(() => {
    isMounted.current = true;
    return () => {
      isMounted.current = false;
    };
  }, []);
  const isListed = opening !== '' && names.includes(opening);
  React.useEffect(() => {
    if (isListed) {
      onClose();
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `onClose` is new at each render
  }, [isListed]);
  const wrong = useChecks(name.trim(), options, props.ask);
  const price = usePrice(name.trim(), options, props.ask);
  const request = run('up', { pool: name.trim(), options });
  const line = equivalent(request);
  const field = (each: FormField) => (
    <Field
      key={each.flag}
      field={each}
      value={options[each.flag] ?? ''}
      wrong={wrong[each.flag]}
      onChange={text => setOptions({ ...options, [each.flag]: text })}
    />
  );
  const open = async () => {
    setReason('');
    setOpening(names.includes(name.trim()) ? '' : name.trim());
    const refusal = await props.submit(request);
    if (!isMounted.current) {
      if (refusal) {
        props.onRefused({ name, options, reason: refusal });
      }
      return;
    }
    setOpening('');
    setReason(refusal);
    if (!refusal) {
      onClose();
    }
  };
  return (
    <form
      className="skyward-Form"
      aria-label={trans.__('New pool')}
      onKeyDown={event => event.key === 'Escape' && onClose()}
      onSubmit={event => {
        event.preventDefault();
        void open();
      }}
    >
      {reason && (
        <p className="skyward-Notice skyward-mod-error skyward-Form-reason" role="alert">
          {reason}
        </p>
      )}
      <Row name={trans.__('name')} wrong={opening ? '' : wrong.name}>
        <InputGroup
          autoFocus
          aria-label={trans.__('name')}
          aria-invalid={Boolean(wrong.name)}
          value={name}
          onChange={event => setName(event.currentTarget.value)}
        />
      </Row>
      {form.filter(each => FIRST.includes(each.flag)).map(field)}
      <details open={isMoreOpen} onToggle={event => setMoreOpen(event.currentTarget.open)}>
        <summary>{trans.__('More')}</summary>
        {form.filter(each => !FIRST.includes(each.flag)).map(field)}
      </details>
      {Object.keys(wrong).length === 0 && <PriceLine price={price} budget={options['--budget'] ?? ''} trans={trans} />}
      {wrong[''] && (
        <p className="skyward-Form-wrong" role="alert">
          {wrong['']}
        </p>
      )}
      <code className="skyward-Form-line">{line}</code>
      <div className="skyward-Form-buttons">
        <Button type="submit" main disabled={!request.arguments.pool || opening !== ''}>
          {opening ? trans.__('Opening…') : trans.__('Open')}
        </Button>
        <Button onClick={() => void navigator.clipboard?.writeText(line)}>{trans.__('Copy line')}</Button>
        <Button onClick={onClose}>{trans.__('Cancel')}</Button>
      </div>
    </form>
  );
}
