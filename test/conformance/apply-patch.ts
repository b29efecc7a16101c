/** A place where a patch changes a file. */
interface Hunk {
  /** The first line that it replaces, from 1. */
  readonly start: number;
  readonly before: readonly string[];
  readonly after: readonly string[];
}

const FILE = /^--- a\/(\S+)\n\+\+\+ b\/\S+\n/gm;
const HUNK_HEADER = /^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*$/;

/**
 * Reads a unified diff, as git writes it, of files that are changed and neither added nor removed.
 * @returns the hunks of each file by its path
 */
export function parsePatch(patch: string): ReadonlyMap<string, readonly Hunk[]> {
  const starts = [...patch.matchAll(FILE)];
  return new Map(
    starts.map((match, index) => {
      const end = starts[index + 1]?.index ?? patch.length;
      return [match[1] ?? "", hunksOf(patch.slice(match.index + match[0].length, end))];
    }),
  );
}

function hunksOf(text: string): readonly Hunk[] {
  const hunks: { start: number; before: string[]; after: string[] }[] = [];
  for (const line of text.split("\n")) {
    const start = HUNK_HEADER.exec(line)?.[1];
    const hunk = hunks.at(-1);
    if (start !== undefined) hunks.push({ start: Number(start), before: [], after: [] });
    else if (line.startsWith(" ")) {
      hunk?.before.push(line.slice(1));
      hunk?.after.push(line.slice(1));
    } else if (line.startsWith("-")) hunk?.before.push(line.slice(1));
    else if (line.startsWith("+")) hunk?.after.push(line.slice(1));
  }
  return hunks;
}

/**
 * Applies hunks at the lines that they name, where every line must be as they say: the patch is of one version of the file.
 * @param name how messages name the file
 * @throws {Error} where a line is another one
 */
export function applyHunks(name: string, text: string, hunks: readonly Hunk[]): string {
  const lines = text.split("\n");
  // From the last one, so that the line numbers of those before stay true.
  for (const { start, before, after } of hunks.toReversed()) {
    const wrong = before.findIndex((line, index) => lines[start - 1 + index] !== line);
    if (wrong !== -1) {
      throw new Error(
        `Cannot patch "${name}": line ${start + wrong} is "${lines[start - 1 + wrong] ?? ""}", expected "${before[wrong]}"`,
      );
    }
    lines.splice(start - 1, before.length, ...after);
  }
  return lines.join("\n");
}
