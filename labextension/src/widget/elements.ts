/** What every element may be given beside its content. */
type Attributes = { [name: string]: string };

type Content = string | Node | (string | Node)[];

/** An element: its class, its text or children, and its attributes. */
export function make<T extends keyof HTMLElementTagNameMap>(
  tag: T,
  name = '',
  content: Content = [],
  attributes: Attributes = {}
): HTMLElementTagNameMap[T] {
  const element = document.createElement(tag);
  element.className = name && `skyward-view-${name}`;
  element.append(...[content].flat());
  set(element, attributes);
  return element;
}

/** An element of a drawing. */
export function makeSvg<T extends keyof SVGElementTagNameMap>(
  tag: T,
  attributes: Attributes
): SVGElementTagNameMap[T] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  set(element, attributes);
  return element;
}

function set(element: Element, attributes: Attributes): void {
  Object.entries(attributes).forEach(([key, value]) =>
    element.setAttribute(key, value)
  );
}

/** Set a text only where it is another one: selections and screen readers stay undisturbed. */
export function say(element: Node, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Have `parent` hold one child for each item, in order, and keep those that are there. */
export function sync<T>(
  parent: HTMLElement,
  items: readonly T[],
  keyOf: (item: T) => string | number,
  create: () => HTMLElement,
  fill: (child: HTMLElement, item: T) => void
): void {
  const children = [...parent.children] as HTMLElement[];
  const known = new Map(children.map(child => [child.dataset.key, child]));
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    const child = known.get(key) ?? create();
    known.delete(key);
    child.dataset.key = key;
    if (parent.children[index] !== child) {
      parent.insertBefore(child, parent.children[index] ?? null);
    }
    fill(child, item);
  });
  known.forEach(child => child.remove());
}
