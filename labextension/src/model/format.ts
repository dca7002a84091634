/** Numbers as the panel writes them. They keep their width as they grow, so that nothing jumps. */

/** USD: `$0.0124`, `$1,204.00`. Small amounts show where they stand. */
export function money(usd: number): string {
  const digits = usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2;
  return `$${usd.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** Seconds: `0:41`, `12:04`, `3:02:10`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = String(whole % 60).padStart(2, '0');
  return hours
    ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}`
    : `${minutes}:${rest}`;
}

/** The time of day of a moment in Unix time: `12:04:31`. */
export function clock(at: number): string {
  return new Date(at * 1000).toTimeString().slice(0, 8);
}

/** A share from 0 to 1: `91%`; a dash where it is not known. */
export function share(value: number | null | undefined): string {
  return value === null || value === undefined
    ? '–'
    : `${Math.round(value * 100)}%`;
}

/** A whole number: `12,304`. */
export function whole(value: number): string {
  return value.toLocaleString('en-US');
}

/** What a pool has cost by now. */
export function spentBy(
  now: number,
  pool: { spent: number; spent_at: number; per_hour: number }
): number {
  const hours = Math.max(0, now - pool.spent_at) / 3600;
  return pool.spent + pool.per_hour * hours;
}
