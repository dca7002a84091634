/** Attributes of an element. */
type Attributes = { [name: string]: string };

type Content = string | Node | (string | Node)[];

/** Create an HTML element with a class, text or children, and attributes. */
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

/** Create an SVG element. */
export function makeSvg<T extends keyof SVGElementTagNameMap>(tag: T, attributes: Attributes): SVGElementTagNameMap[T] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  set(element, attributes);
  return element;
}

function set(element: Element, attributes: Attributes): void {
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
}

/** Set a text only if it differs, so that selections and screen readers are not disturbed. */
export function setText(element: Node, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** Synchronize the children of `parent` with the items, in order, and reuse existing children. */
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
