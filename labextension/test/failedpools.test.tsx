// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, expect, it, vi } from 'vitest';

import { UNTRANSLATED } from '../src/model/translation';
import { FailedPools } from '../src/panel/failedpools';

afterEach(cleanup);

it('a pool that failed to open is shown with the reason and the lines of its log, and can be dismissed', () => {
  const dismiss = vi.fn();
  const reason = "Pool 'train' could not start node 0: refused:\nline 1\nline 2";
  render(<FailedPools rows={[{ name: 'train', reason, at: 1000 }]} onDismiss={dismiss} trans={UNTRANSLATED} />);
  expect(screen.getByText('failed')).toBeTruthy();
  expect(screen.getByText("Pool 'train' could not start node 0: refused:")).toBeTruthy();
  expect(screen.getByText(/line 1/).textContent).toBe('line 1\nline 2');
  fireEvent.click(screen.getByRole('button', { name: 'Dismiss pool train' }));
  expect(dismiss).toHaveBeenCalledExactlyOnceWith('train');
});
