import { describe, expect, it } from 'vitest';

import cases from '../../tests/cases/formats.json';
import { duration, money, size } from '../src/model/format';

const FORMATTERS = { money, duration, size };

describe.each(Object.keys(FORMATTERS) as (keyof typeof FORMATTERS)[])('%s', kind => {
  it.each(cases[kind] as [number, string][])('formats %d as the library does', (value, text) => {
    expect(FORMATTERS[kind](value)).toBe(text);
  });
});
