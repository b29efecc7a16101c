/** One change of a source file of another project: a text that it contains once, and what takes its place. */
export interface SourceEdit {
  /** Says in docs/conformance.md why the suite cannot run as it is. */
  readonly why: string;
  readonly from: string;
  readonly to: string;
}

/**
 * Applies edits to a source file.
 * @param name how messages name the file
 * @throws {Error} where a text is not there, or more than once: upstream has changed, and the edit has to be looked at again
 */
export function editSource(name: string, text: string, edits: readonly SourceEdit[]): string {
  return edits.reduce((edited, edit) => {
    const at = indexOf(name, edited, edit);
    return edited.slice(0, at) + edit.to + edited.slice(at + edit.from.length);
  }, text);
}

/**
 * Shows edits as hunks of a unified diff without context, with the line numbers of the unchanged file.
 * @throws {Error} as {@link editSource}
 */
export function diffOf(name: string, text: string, edits: readonly SourceEdit[]): string {
  return edits.map((edit) => hunkOf(name, text, edit)).join("\n");
}

function hunkOf(name: string, text: string, edit: SourceEdit): string {
  const at = indexOf(name, text, edit);
  const start = text.lastIndexOf("\n", at - 1) + 1;
  const newline = text.indexOf("\n", at + edit.from.length - (edit.from.endsWith("\n") ? 1 : 0));
  const end = newline === -1 ? text.length : newline;
  const before = text.slice(start, end);
  const after = editSource(name, `${before}\n`, [edit]).replace(/\n$/, "");
  const removed = before.split("\n");
  const added = after === "" ? [] : after.split("\n");
  const line = text.slice(0, start).split("\n").length;
  const header = `@@ -${line},${removed.length} +${line},${added.length} @@`;
  return [header, ...removed.map((one) => `-${one}`), ...added.map((one) => `+${one}`)].join("\n");
}

function indexOf(name: string, text: string, { from }: SourceEdit): number {
  const at = text.indexOf(from);
  const problem = at === -1 ? "is not there" : text.includes(from, at + 1) ? "is there more than once" : undefined;
  if (problem === undefined) return at;
  const firstLine = from.trim().split("\n")[0];
  throw new Error(`Cannot edit "${name}": the text that begins with "${firstLine}" ${problem}; upstream has changed`);
}
