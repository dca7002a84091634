import { Price } from '../protocol';
import { duration, money } from './format';

/** Format the cost of a pool per hour: `$3.00/h`, `$3.00/h – $12.00/h`. */
export function perHour(price: Price): string {
  const [least, most] = [money(price.least), money(price.most)];
  return least === most ? `${least}/h` : `${least}/h – ${most}/h`;
}

/** Format how long a budget lasts at the maximum number of nodes; empty if it is unlimited or not a number. */
export function budgetDuration(price: Price, budget: string): string {
  const usd = Number(budget);
  return budget.trim() && usd > 0 && price.most > 0 ? duration((usd / price.most) * 3600) : '';
}
