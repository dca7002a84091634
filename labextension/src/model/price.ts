import { Price } from '../protocol';
import { duration, money } from './format';

/** What a pool would cost an hour: `$3.00/h`, `$3.00/h – $12.00/h`. */
export function perHour(price: Price): string {
  const [least, most] = [money(price.least), money(price.most)];
  return least === most ? `${least}/h` : `${least}/h – ${most}/h`;
}

/** How long a budget lasts with the most nodes; empty where it lasts for ever, or is none. */
export function lasts(price: Price, budget: string): string {
  const usd = Number(budget);
  return budget.trim() && usd > 0 && price.most > 0
    ? duration((usd / price.most) * 3600)
    : '';
}
