/**
 * Sort items by the former order of their keys, new ones last, so that the row under the pointer does not move.
 */
export function stableOrder<T>(items: readonly T[], before: readonly string[], keyOf: (item: T) => string): T[] {
  const places = new Map(before.map((key, index) => [key, index]));
  const place = (item: T) => places.get(keyOf(item)) ?? before.length;
  return [...items].sort((a, b) => place(a) - place(b));
}
