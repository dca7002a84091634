import type { Translation } from '../model/panel';

/** Identity translation for code shared with the panel: front ends of widgets have no translations. */
export const UNTRANSLATED: Translation = { __: text => text };
