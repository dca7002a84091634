/** Seconds back to which a rate is told. */
const SPAN = 5;

/** How fast a count grows, from when it was looked at. */
export class Rate {
  /** The count is this at a time, in seconds; how much it grows each second, or null where that is not known yet. */
  at(time: number, count: number): number | null {
    const last = this._seen[this._seen.length - 1];
    if (!last || count !== last.count || time >= last.time + 1) {
      this._seen.push({ time, count });
    }
    while (this._seen.length > 2 && this._seen[1].time <= time - SPAN) {
      this._seen.shift();
    }
    const [first] = this._seen;
    return time - first.time < 1 ? null : (count - first.count) / (time - first.time);
  }

  private _seen: { time: number; count: number }[] = [];
}
