import * as React from 'react';

type ButtonProps = React.ButtonHTMLAttributes<HTMLButtonElement> & {
  /** True for the main action among several buttons. */
  main?: boolean;
};

/** A button with a text. Its classes are those of JupyterLab's buttons; the widget styles them in other front ends. */
export function Button({ main, ...others }: ButtonProps): JSX.Element {
  const look = main ? 'jp-mod-styled jp-mod-accept' : 'jp-mod-minimal';
  return <button type="button" className={`skyward-Button jp-Button jp-mod-small ${look}`} {...others} />;
}

/** A button that looks like a link. */
export function LinkButton(props: React.ButtonHTMLAttributes<HTMLButtonElement>): JSX.Element {
  return <button type="button" className="skyward-Link" {...props} />;
}

/** A small button with an icon; its tooltip has `title` and the equivalent line of `%sky`. */
export function IconButton(props: {
  icon: React.ReactNode;
  title: string;
  equivalent?: string;
  disabled?: boolean;
  pressed?: boolean;
  /** True if it opens a menu. */
  popup?: boolean;
  onClick: (event: React.MouseEvent<HTMLButtonElement>) => void;
}): JSX.Element {
  return (
    <button
      type="button"
      className="skyward-IconButton jp-Button jp-mod-minimal"
      title={props.equivalent ? `${props.title}\n${props.equivalent}` : props.title}
      aria-label={props.title}
      aria-pressed={props.pressed}
      aria-haspopup={props.popup ? 'menu' : undefined}
      disabled={props.disabled}
      onClick={event => {
        event.stopPropagation();
        props.onClick(event);
      }}
    >
      {props.icon}
    </button>
  );
}
