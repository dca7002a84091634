/**
 * Text for people: one formatter of each kind. `skyward/formatting.py` has the same formatters of money, durations and
 * sizes; `tests/cases/formats.json` holds both to the same results.
 */

/** Format USD: `$1,204.00`; below ten cents to the hundredth of a cent, `$0.0124`. */
export function money(usd: number): string {
  if (usd > 0 && usd < 0.00005) {
    return '<$0.0001';
  }
  const digits = usd !== 0 && Math.abs(usd) < 0.1 ? 4 : 2;
  return `$${usd.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

/** Format seconds: `4.2 s`, `41 s`, `3 min 20 s`, `2 h 5 min`. */
export function duration(seconds: number): string {
  if (seconds < 9.95) {
    return `${Math.max(0, seconds).toFixed(1)} s`;
  }
  if (seconds < 59.5) {
    return `${seconds.toFixed(0)} s`;
  }
  const all = Math.round(seconds);
  const minutes = Math.floor(all / 60);
  return minutes < 60 ? `${minutes} min ${all % 60} s` : `${whole(Math.floor(minutes / 60))} h ${minutes % 60} min`;
}

/** Format a number of bytes, in powers of 1024: `512 B`, `1.5 MiB`, `2.0 GiB`. */
export function size(nbytes: number): string {
  if (nbytes < 1024) {
    return `${nbytes.toFixed(0)} B`;
  }
  for (const unit of ['KiB', 'MiB']) {
    nbytes /= 1024;
    if (nbytes < 1023.95) {
      return `${nbytes.toFixed(1)} ${unit}`;
    }
  }
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
  return `${(nbytes / 1024).toLocaleString('en-US', digits)} GiB`;
}

/** Format a Unix time as the local time of day: `12:04:31`. */
export function clock(at: number): string {
  return new Date(at * 1000).toTimeString().slice(0, 8);
}

/** Format a share from 0 to 1: `91%`; a dash if it is unknown. */
export function share(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : `${Math.round(value * 100)}%`;
}

/** Format a whole number: `12,304`. */
export function whole(value: number): string {
  return value.toLocaleString('en-US');
}

/** Return the cost of a pool up to a time, USD. */
export function spentBy(now: number, pool: { spent: number; spent_at: number; per_hour: number }): number {
  const hours = Math.max(0, now - pool.spent_at) / 3600;
  return pool.spent + pool.per_hour * hours;
}
