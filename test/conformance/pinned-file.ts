import { createHash } from "node:crypto";

/** What a file, or all files of a folder, of another project must be. */
export interface PinnedFile {
  /** Relative to the folder of the project; a folder ends with "/". */
  readonly path: string;
  /** Hexadecimal. Of a folder: of the lines `sha256  path`, sorted by path, as `sha256sum` prints them. */
  readonly sha256: string;
}

/** How a file is read: its bytes, or `undefined` where it is not there; of a folder the paths of all files in it. */
export interface SourceReader {
  readonly read: (path: string) => Uint8Array | undefined;
  readonly list: (folder: string) => readonly string[];
}

/**
 * What is wrong with files of another project, one line each.
 * @param project how the lines name it, with its version
 */
export function pinProblems(project: string, pins: readonly PinnedFile[], reader: SourceReader): readonly string[] {
  return pins.flatMap(({ path, sha256 }) => {
    const found = digestOf(path, reader);
    if (found === sha256) return [];
    if (found === undefined) return [`Cannot use ${project}: "${path}" is not there`];
    return [`Cannot use ${project}: "${path}" is not the pinned one: expected SHA-256 ${sha256}, found ${found}`];
  });
}

/** The digest of a file or of a folder, as {@link PinnedFile} has it; `undefined` where there is no such file. */
export function digestOf(path: string, { read, list }: SourceReader): string | undefined {
  if (!path.endsWith("/")) {
    const bytes = read(path);
    return bytes === undefined ? undefined : sha256Of(bytes);
  }
  const files = list(path).toSorted();
  if (files.length === 0) return undefined;
  return sha256Of(files.map((file) => `${sha256Of(read(file) ?? new Uint8Array())}  ${file}\n`).join(""));
}

function sha256Of(bytes: Uint8Array | string): string {
  return createHash("sha256").update(bytes).digest("hex");
}
