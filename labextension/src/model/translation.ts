/** The part of JupyterLab's translation bundle that is used: a text with the values of `%1`, `%2`... */
export interface Translation {
  __(text: string, ...values: (string | number)[]): string;
}

/** Texts in English, for front ends without translations. */
export const UNTRANSLATED: Translation = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, position: string) => `${values[Number(position) - 1]}`)
};
