import type { Words } from '../model/panel';

/** What is shared with the panel speaks English here: front ends of widgets have no translations. */
export const WORDS: Words = { __: text => text };
