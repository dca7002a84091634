// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import * as React from 'react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Options } from '../src/model/equivalent';
import { UNTRANSLATED } from '../src/model/translation';
import { NewPool, RefusedPool } from '../src/panel/form';
import { Ask } from '../src/panel/props';
import { FormField, RunRequest, VERSION } from '../src/protocol';

afterEach(cleanup);

const FIELDS: FormField[] = ['--nodes', '--budget', '--disk', '--plugin'].map(flag => ({
  ...{ flag, metavar: 'N', help: '', choices: [], takes: '' }
}));

/** The options of each request for a price. */
const priced: Options[] = [];

/** Answer queries as the kernel does: the number of nodes must be a number. */
const ask: Ask = request => {
  if (request.kind === 'ask-price') {
    priced.push(request.options);
  }
  if (request.kind !== 'ask-check') {
    return Promise.resolve('');
  }
  const wrong: { [field: string]: string } = {};
  if (!/^\d*$/.test(request.options['--nodes'] ?? '')) {
    wrong['--nodes'] = 'nodes must be a number';
  }
  return Promise.resolve({ kind: 'checked', id: '1', version: VERSION, wrong });
};

describe('the form of a new pool', () => {
  /** Ends the command that the form has sent. */
  let answer: (reason: string) => void;
  const submit = vi.fn<(request: RunRequest) => Promise<string>>();
  const refuse = vi.fn<(pool: RefusedPool) => void>();
  const close = vi.fn<() => void>();

  const shown = (names: string[] = [], refused: RefusedPool | null = null) => (
    <NewPool
      {...{ form: FIELDS, names, refused, ask, submit, trans: UNTRANSLATED }}
      onRefused={refuse}
      onClose={close}
    />
  );
  const field = (name: string) => screen.getByLabelText<HTMLInputElement>(name);
  const type = (name: string, value: string) => fireEvent.change(field(name), { target: { value } });

  beforeEach(() => {
    submit.mockReset().mockImplementation(() => new Promise(resolve => (answer = resolve)));
    refuse.mockReset();
    close.mockReset();
  });

  it('marks a wrong field with the reason, until it is right', async () => {
    render(shown());
    type('nodes', 'x');
    expect(await screen.findByText('nodes must be a number')).toBeTruthy();
    expect([field('nodes'), field('budget')].map(each => each.getAttribute('aria-invalid'))).toEqual(['true', 'false']);
    type('nodes', '2');
    await waitFor(() => expect(screen.queryByText('nodes must be a number')).toBeNull());
    expect(field('nodes').getAttribute('aria-invalid')).toBe('false');
  });

  it('sends the plugins, which do not affect the price', async () => {
    priced.length = 0;
    render(shown());
    await waitFor(() => expect(priced).toEqual([{}]));
    type('plugin', 'jax,keras');
    expect(screen.getByText('%sky up default --plugin jax,keras')).toBeTruthy();
    type('nodes', '2');
    await waitFor(() => expect(priced).toEqual([{}, { '--nodes': '2' }]));
    fireEvent.click(screen.getByRole('button', { name: 'Open' }));
    const options = { '--nodes': '2', '--plugin': 'jax,keras' };
    expect(submit).toHaveBeenCalledExactlyOnceWith({
      kind: 'run',
      command: 'up',
      arguments: { pool: 'default', options }
    });
  });

  it('keeps what was typed, and shows the reason, when the pool is refused', async () => {
    render(shown());
    type('nodes', '2');
    fireEvent.click(screen.getByRole('button', { name: 'Open' }));
    expect(screen.getByRole<HTMLButtonElement>('button', { name: 'Opening…' }).disabled).toBe(true);
    answer('no machines are left');
    expect(await screen.findByText('no machines are left')).toBeTruthy();
    expect(field('nodes').value).toBe('2');
    expect(close).not.toHaveBeenCalled();
    fireEvent.click(screen.getByRole('button', { name: 'Open' }));
    expect(screen.queryByText('no machines are left')).toBeNull();
    answer('');
    await waitFor(() => expect(close).toHaveBeenCalledOnce());
  });

  it('is closed once the pool is listed, and opened again with what was typed if the pool is refused', async () => {
    const { rerender, unmount } = render(shown());
    type('nodes', '2');
    fireEvent.click(screen.getByRole('button', { name: 'Open' }));
    expect(close).not.toHaveBeenCalled();
    rerender(shown(['default']));
    expect(close).toHaveBeenCalledOnce();
    unmount();
    answer('node 0 did not start');
    const refused = { name: 'default', options: { '--nodes': '2', '--disk': '9' }, reason: 'node 0 did not start' };
    await waitFor(() => expect(refuse).toHaveBeenCalledExactlyOnceWith({ ...refused, options: { '--nodes': '2' } }));
    render(shown([], refused));
    expect([field('name').value, field('nodes').value, field('disk').value]).toEqual(['default', '2', '9']);
    expect(screen.getByText('node 0 did not start')).toBeTruthy();
    expect(screen.getByText('More').closest('details')?.open).toBe(true);
  });
});
