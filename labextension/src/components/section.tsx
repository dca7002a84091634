import * as React from 'react';

const FOLDED = 'skyward-folded:';

/** Return the browser's storage; null where pages may not use it, as in sandboxed frames. */
function storage(): Storage | null {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}

/** A section with a heading that folds it; the browser remembers the state under `name`. */
export function Section(props: {
  name: string;
  title: string;
  summary?: React.ReactNode;
  actions?: React.ReactNode;
  children: React.ReactNode;
}): JSX.Element {
  const key = FOLDED + props.name;
  const [folded, setFolded] = React.useState(() => storage()?.getItem(key) === 'yes');
  const fold = () => {
    storage()?.setItem(key, folded ? 'no' : 'yes');
    setFolded(!folded);
  };
  return (
    <section className="skyward-Section" data-section={props.name}>
      <header className="skyward-Section-header">
        <h3>
          <button type="button" className="skyward-Section-fold" aria-expanded={!folded} onClick={fold}>
            {props.title}
          </button>
        </h3>
        <span className="skyward-Section-summary">{props.summary}</span>
        {props.actions}
      </header>
      {!folded && props.children}
    </section>
  );
}
