// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { Bounds } from '../src/components/bounds';
import { Decisions } from '../src/components/decisions';
import { PoolCard } from '../src/components/pool';
import { UNTRANSLATED } from '../src/model/translation';
import { PoolRow } from '../src/protocol';
import { decisionRow, poolRow } from './rows';

afterEach(cleanup);

describe('the card of a pool', () => {
  it('shows nodes, provider, policy and cost', () => {
    render(<PoolCard pool={poolRow({ per_hour: 0, budget: 5 })} trans={UNTRANSLATED} />);
    expect(screen.getByText('2 of 1–4 nodes · aws · pressure')).toBeTruthy();
    expect(screen.getByText('$1.00 spent')).toBeTruthy();
    expect(screen.getByText('$4.00 left')).toBeTruthy();
  });

  it('counts one node in the singular', () => {
    const one = { min: 1, max: 1, desired: 1, active: 0 };
    render(<PoolCard pool={poolRow(one)} trans={UNTRANSLATED} />);
    expect(screen.getByText('0 of 1 node · aws')).toBeTruthy();
  });

  it('shows the first line of a failure, and what happens to nodes without budget', () => {
    const failing = poolRow({ failure: 'reached its budget of $5.00:\nmore', budget_exhausted: true });
    render(<PoolCard pool={failing} trans={UNTRANSLATED} />);
    expect(
      screen.getByText('It reached its budget of $5.00. Its nodes finish their tasks, then terminate.')
    ).toBeTruthy();
  });

  it('can be selected only where there is something to select', () => {
    const select = vi.fn();
    const { rerender } = render(<PoolCard pool={poolRow()} onSelect={select} trans={UNTRANSLATED} />);
    fireEvent.click(screen.getByRole('button', { name: 'train' }));
    expect(select).toHaveBeenCalledOnce();
    rerender(<PoolCard pool={poolRow()} trans={UNTRANSLATED} />);
    expect(screen.queryByRole('button')).toBeNull();
  });
});

describe('the bounds of a pool', () => {
  const scale = vi.fn<(min: number, max: number) => Promise<void>>(() => Promise.resolve());
  const shown = (pool: PoolRow) => (
    <Bounds pool={pool} onScale={scale} equivalent={(min, max) => `${min}:${max}`} trans={UNTRANSLATED} />
  );
  const least = () => screen.getByLabelText<HTMLInputElement>('Minimum nodes of pool train');
  const most = () => screen.getByLabelText<HTMLInputElement>('Maximum nodes of pool train');
  afterEach(() => scale.mockClear());

  it('are sent on Enter', () => {
    render(shown(poolRow()));
    fireEvent.change(least(), { target: { value: '3' } });
    expect([least().value, most().value, least().title]).toEqual(['3', '4', '3:4']);
    expect(scale).not.toHaveBeenCalled();
    fireEvent.keyDown(least(), { key: 'Enter' });
    expect(scale).toHaveBeenCalledExactlyOnceWith(3, 4);
  });

  it('are refused with a sentence if they are wrong, and neither is changed', () => {
    render(shown(poolRow()));
    fireEvent.change(least(), { target: { value: '6' } });
    expect(screen.queryByRole('alert')).toBeNull();
    fireEvent.keyDown(least(), { key: 'Enter' });
    expect(screen.getByRole('alert').textContent).toBe('The minimum, 6, is above the maximum, 4: change one of them.');
    expect([least().value, most().value, least().getAttribute('aria-invalid')]).toEqual(['6', '4', 'true']);
    fireEvent.change(most(), { target: { value: '0' } });
    expect(screen.getByRole('alert').textContent).toBe('The maximum is 1 or more.');
    fireEvent.change(most(), { target: { value: '' } });
    expect(screen.getByRole('alert').textContent).toBe('The bounds are whole numbers of nodes, 0 or more.');
    fireEvent.blur(most());
    expect(scale).not.toHaveBeenCalled();
    fireEvent.change(most(), { target: { value: '9' } });
    expect(screen.queryByRole('alert')).toBeNull();
    fireEvent.blur(most());
    expect(scale).toHaveBeenCalledExactlyOnceWith(6, 9);
  });

  it('are reset on Escape', () => {
    render(shown(poolRow()));
    fireEvent.change(most(), { target: { value: '9' } });
    fireEvent.keyDown(most(), { key: 'Escape' });
    expect(most().value).toBe('4');
    fireEvent.blur(most());
    expect(scale).not.toHaveBeenCalled();
  });

  it('of a dragged thumb are sent once, on release', () => {
    render(shown(poolRow()));
    const thumb = screen.getByLabelText('Maximum nodes');
    for (const value of ['5', '6', '7']) {
      fireEvent.change(thumb, { target: { value } });
    }
    fireEvent.pointerUp(thumb);
    expect(scale).toHaveBeenCalledExactlyOnceWith(1, 7);
  });

  it('cannot be changed once the pool stops', () => {
    render(shown(poolRow({ state: 'stopping' })));
    expect([least().disabled, most().disabled]).toEqual([true, true]);
  });
});

describe('scaling decisions', () => {
  it('are listed with the change and the reason, the newest first', () => {
    const rows = [decisionRow(1), decisionRow(2, { before: 4, after: 4, held_back: 'cooldown', times: 3 })];
    render(<Decisions rows={rows} points={[]} trans={UNTRANSLATED} />);
    const texts = screen.getAllByRole('listitem').map(row => row.textContent);
    expect(texts[0]).toContain('steady9 queued (held back: cooldown) ×3');
    expect(texts[1]).toContain('1 → 49 queued');
  });
});
