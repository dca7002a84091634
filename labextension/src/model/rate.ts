/** Time window of a rate, seconds. */
const SPAN = 5;

/** Growth rate of a count, from samples. */
export class Rate {
  /** Add a sample at a time in seconds. Return the growth per second, or null if it is not known yet. */
  at(time: number, count: number): number | null {
    const last = this._samples[this._samples.length - 1];
    if (!last || count !== last.count || time >= last.time + 1) {
      this._samples.push({ time, count });
    }
    while (this._samples.length > 2 && this._samples[1].time <= time - SPAN) {
      this._samples.shift();
    }
    const [first] = this._samples;
    return time - first.time < 1 ? null : (count - first.count) / (time - first.time);
  }

  private _samples: { time: number; count: number }[] = [];
}
