import type { Edit } from "./mutation.ts";

/**
 * A file as edits change it.
 * @throws {Error} where the text of an edit does not stand in it exactly once: then the code has changed, and the mutation has to follow.
 */
export function mutatedText(text: string, edits: readonly Edit[]): string {
  return edits.reduce((before, { file, from, to }) => {
    const times = before.split(from).length - 1;
    if (times !== 1) throw new Error(`the text of a mutation stands ${times} times in ${file}: ${from}`);
    return before.replace(from, () => to);
  }, text);
}
