import * as React from 'react';

/** Return the current Unix time, and redraw once a second while `on` and the page is visible. */
export function useNow(on: boolean): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    if (!on) {
      return;
    }
    const tick = () => {
      if (document.visibilityState !== 'hidden') {
        setNow(Date.now() / 1000);
      }
    };
    tick();
    const timer = window.setInterval(tick, 1000);
    return () => window.clearInterval(timer);
  }, [on]);
  return now;
}

/** Redraw after each call of the function that `subscribe` receives, at most once per frame. */
export function useRedraw(subscribe: (onChange: () => void) => () => void): void {
  const [, redraw] = React.useReducer((count: number) => count + 1, 0);
  React.useEffect(() => {
    let frame = 0;
    const onChange = () => {
      frame ||= window.requestAnimationFrame(() => {
        frame = 0;
        redraw();
      });
    };
    const unsubscribe = subscribe(onChange);
    onChange();
    return () => {
      window.cancelAnimationFrame(frame);
      unsubscribe();
    };
  }, [subscribe]);
}
