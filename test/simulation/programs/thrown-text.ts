import { messageOf } from "../../../src/errors.ts";
import type { World } from "../world/world.ts";

/** What only a mistake in the code throws, whatever the network answers. */
const MISTAKES = [EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError] as const;

/** What a violation begins with that is such a mistake. */
export const MISTAKE = "mistake: ";

/** The text of what a program logs, or ends with. It is a violation where only a mistake in the code of ksvm throws it. */
export function thrownText(world: Pick<World, "violate">, who: string, thrown: unknown): string {
  const mistake = MISTAKES.find((type) => thrown instanceof type);
  if (mistake !== undefined) world.violate(`${MISTAKE}${who} threw a ${mistake.name}: ${messageOf(thrown)}`);
  return messageOf(thrown);
}
