// @vitest-environment happy-dom
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { IconButton } from '../src/components/button';
import { Section } from '../src/components/section';
import { State } from '../src/components/state';

afterEach(() => {
  cleanup();
  window.localStorage.clear();
});

function shown(): JSX.Element {
  return (
    <Section name="tasks" title="Tasks" summary="3 running">
      <p>the table</p>
    </Section>
  );
}

describe('a section', () => {
  it('folds its content away, and stays folded when it is drawn again', () => {
    render(shown());
    const fold = screen.getByRole('button', { name: 'Tasks' });
    expect(fold.getAttribute('aria-expanded')).toBe('true');
    fireEvent.click(fold);
    expect(screen.queryByText('the table')).toBeNull();
    cleanup();
    render(shown());
    expect(screen.queryByText('the table')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Tasks' }));
    expect(screen.getByText('the table')).toBeTruthy();
  });

  it('shows its summary while it is folded', () => {
    render(shown());
    fireEvent.click(screen.getByRole('button', { name: 'Tasks' }));
    expect(screen.getByText('3 running')).toBeTruthy();
  });
});

describe('a state', () => {
  it('is a word, and its icon is hidden from screen readers', () => {
    render(<State icon="●" word="active" tone="good" />);
    expect(screen.getByText('active').className).toContain('skyward-mod-good');
    expect(screen.getByText('●').getAttribute('aria-hidden')).toBe('true');
  });
});

describe('an icon button', () => {
  it('names its action, and shows the equivalent command in its tooltip', () => {
    const clicked = vi.fn();
    render(<IconButton icon="✕" title="Cancel task 5" equivalent="%sky cancel --task 5" onClick={clicked} />);
    const button = screen.getByRole('button', { name: 'Cancel task 5' });
    expect(button.title).toBe('Cancel task 5\n%sky cancel --task 5');
    fireEvent.click(button);
    expect(clicked).toHaveBeenCalledOnce();
  });

  it('cannot be clicked while it is disabled', () => {
    const clicked = vi.fn();
    render(<IconButton icon="✕" title="Cancel" disabled onClick={clicked} />);
    fireEvent.click(screen.getByRole('button'));
    expect(clicked).not.toHaveBeenCalled();
  });
});
