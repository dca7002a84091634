/**
 * The items in the order that their keys had before, those that are new coming last: so that a row stays under the
 * pointer, whatever becomes of the others.
 */
export function inOrderOf<T>(items: readonly T[], before: readonly string[], keyOf: (item: T) => string): T[] {
  const places = new Map(before.map((key, index) => [key, index]));
  const place = (item: T) => places.get(keyOf(item)) ?? before.length;
  return [...items].sort((a, b) => place(a) - place(b));
}
