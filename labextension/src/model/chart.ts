import { PointRow } from '../protocol';

/** Maximum and minimum time span of the chart, seconds; it begins with the pool. */
export const SPAN = 900;
export const SHORTEST = 60;

/** Geometry of the chart: the path of each line, and the value at the top. */
export interface Chart {
  lines: { [name in Line]: string };
  top: number;
}

export type Line = 'queued' | 'running' | 'desired' | 'current';

/** The order in which the lines are drawn and named. */
export const LINES: readonly Line[] = ['queued', 'running', 'desired', 'current'];

/**
 * Return the chart of the last `SPAN` seconds, or since the pool's beginning. A value holds until the next point, so
 * every line is a step function.
 */
export function chart(points: readonly PointRow[], now: number, width: number, height: number): Chart {
  const age = now - (points.length ? points[0].at : now);
  const span = Math.min(SPAN, Math.max(SHORTEST, age));
  const begin = now - span;
  const first = points.findLastIndex(point => point.at <= begin);
  const shown = points.slice(Math.max(0, first));
  const top = Math.max(1, ...shown.flatMap(point => LINES.map(line => point[line])));
  const x = (at: number) => round((Math.max(0, at - begin) / span) * width);
  const y = (value: number) => round(height - (value / top) * height);
  const path = (line: Line) => {
    const steps = shown.map((point, index) =>
      index ? `H${x(point.at)}V${y(point[line])}` : `M${x(point.at)} ${y(point[line])}`
    );
    return steps.length ? `${steps.join('')}H${round(width)}` : '';
  };
  const lines = {
    queued: path('queued'),
    running: path('running'),
    desired: path('desired'),
    current: path('current')
  };
  return { lines, top };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
