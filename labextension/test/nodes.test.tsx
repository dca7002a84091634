// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it } from 'vitest';

import { NodeExtras, Nodes } from '../src/components/nodes';
import { UNTRANSLATED } from '../src/model/translation';
import { NodeRow } from '../src/protocol';
import { nodeRow, poolRow } from './rows';

afterEach(cleanup);

function shown(nodes: NodeRow[], extras?: NodeExtras): JSX.Element {
  return <Nodes pool={poolRow()} nodes={nodes} gauges={new Map()} extras={extras} trans={UNTRANSLATED} />;
}

const many = Array.from({ length: 1000 }, (_, rank) => nodeRow(rank));

describe('the nodes of a pool', () => {
  it('are a list of which only the visible rows are drawn', () => {
    render(shown(many));
    const rows = screen.getAllByRole('listitem');
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.length).toBeLessThan(40);
    expect(rows[2].getAttribute('aria-setsize')).toBe('1000');
    expect(rows[2].getAttribute('aria-posinset')).toBe('3');
  });

  it('are filtered by words once there are many', () => {
    render(shown(many));
    fireEvent.change(screen.getByLabelText('Filter the nodes'), { target: { value: 'busy 999' } });
    expect(screen.getAllByRole('listitem').length).toBe(1);
    fireEvent.change(screen.getByLabelText('Filter the nodes'), { target: { value: 'nothing' } });
    expect(screen.getByText('No matching nodes.')).toBeTruthy();
  });

  it('show their details on a click, until Escape is pressed', () => {
    render(shown([nodeRow(0), nodeRow(1, { address: '10.0.0.8', kept: ['model 3.0 MiB'] })]));
    const row = screen.getAllByRole('button')[1];
    fireEvent.click(row);
    expect(row.getAttribute('aria-expanded')).toBe('true');
    expect(screen.getByText('10.0.0.8')).toBeTruthy();
    expect(screen.getByText('model 3.0 MiB')).toBeTruthy();
    expect(screen.queryByText('10.0.0.7')).toBeNull();
    fireEvent.keyDown(row, { key: 'Escape' });
    expect(screen.queryByText('10.0.0.8')).toBeNull();
  });

  it('have the facts and buttons that the panel adds', () => {
    const extras: NodeExtras = {
      facts: node => [['tasks', `task of ${node.rank}`]],
      buttons: node => <button>Drain {node.rank}</button>
    };
    render(shown([nodeRow(0)], extras));
    fireEvent.click(screen.getByRole('button'));
    expect(screen.getByText('task of 0')).toBeTruthy();
    expect(screen.getByRole('button', { name: 'Drain 0' })).toBeTruthy();
  });

  it('have a duration while they start, and none while they stop', () => {
    const times = { asked_at: Date.now() / 1000 - 23, status: 'requested', state: 'waiting' } as const;
    const { container, rerender } = render(shown([nodeRow(0, times)]));
    const elapsed = () => container.querySelector('.skyward-Boot-elapsed')?.textContent;
    expect(elapsed()).toBe('23 s');
    rerender(shown([nodeRow(0, { ...times, status: 'stopping', state: 'stopping' })]));
    expect(elapsed()).toBe('');
  });

  it('keep their order while the pointer is over the list', () => {
    const ranks = () => screen.getAllByRole('listitem').map(row => row.textContent?.match(/\d+/)?.[0]);
    const { rerender } = render(shown([nodeRow(1), nodeRow(2)]));
    fireEvent.mouseEnter(screen.getByRole('list'));
    rerender(shown([nodeRow(0), nodeRow(1), nodeRow(2)]));
    expect(ranks()).toEqual(['1', '2', '0']);
    fireEvent.mouseLeave(screen.getByRole('list'));
    expect(ranks()).toEqual(['0', '1', '2']);
    expect(screen.queryByText(/new/)).toBeNull();
  });

  it('that are new while the pointer is over the list are counted, and a click shows them in order', () => {
    const ranks = () => screen.getAllByRole('listitem').map(row => row.textContent?.match(/\d+/)?.[0]);
    const { rerender } = render(shown([nodeRow(2), nodeRow(3)]));
    fireEvent.mouseEnter(screen.getByRole('list'));
    rerender(shown([nodeRow(2), nodeRow(3), nodeRow(4)]));
    expect(screen.queryByText(/new/)).toBeNull(); // it is where it belongs
    rerender(shown([nodeRow(0), nodeRow(1), nodeRow(2), nodeRow(3), nodeRow(4)]));
    expect(ranks()).toEqual(['2', '3', '0', '1', '4']);
    fireEvent.click(screen.getByText('↑ 3 new'));
    expect(ranks()).toEqual(['0', '1', '2', '3', '4']);
    expect(screen.queryByText(/new/)).toBeNull();
    rerender(shown([nodeRow(0, { state: 'stopping' }), nodeRow(1), nodeRow(2), nodeRow(3), nodeRow(4)]));
    expect(ranks()).toEqual(['0', '1', '2', '3', '4']);
    fireEvent.click(screen.getByText('↑ The order has changed'));
    expect(ranks()).toEqual(['1', '2', '3', '4', '0']);
  });

  it('that boot show the time in their phase', () => {
    const now = Date.now() / 1000;
    render(shown([nodeRow(0, { state: 'waiting', status: 'starting', phase: 'deps', phase_at: now - 30, usual: 60 })]));
    expect(screen.getByText('deps')).toBeTruthy();
    expect(screen.getByText('of ~1 min 0 s')).toBeTruthy();
  });

  it('that attach volumes say so', () => {
    render(shown([nodeRow(0, { state: 'waiting', status: 'starting', phase: 'volumes' })]));
    expect(screen.getByText('attaching volumes')).toBeTruthy();
  });
});
