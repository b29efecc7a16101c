import { open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { KsvmError, messageOf } from "../../errors.ts";
import { type ManifestText, MAX_MANIFEST_BYTES } from "../../inventory/manifests.ts";
import type { CliIo } from "../render/io.ts";

/** Stands for stdin, as with kubectl. */
const STDIN = "-";
/** The files of a directory that kubectl reads, too. */
const MANIFEST_FILE = /\.(?:ya?ml|json)$/i;

/**
 * Reads what `-f` names: files, directories (their `.yaml`, `.yml` and `.json` files, not those of directories in
 * them), `-` for stdin. All together may have {@link MAX_MANIFEST_BYTES}.
 * @throws {KsvmError} ManifestInvalid where one cannot be read, or all are too large.
 */
export async function readManifestFiles(paths: readonly string[], io: CliIo): Promise<readonly ManifestText[]> {
  const texts: ManifestText[] = [];
  const budget: Budget = { leftBytes: MAX_MANIFEST_BYTES };
  for (const path of new Set(paths)) {
    const sources = path === STDIN ? [STDIN] : await filesAt(path);
    for (const source of sources) {
      texts.push({
        source: source === STDIN ? "stdin" : source,
        text: source === STDIN ? await readStdin(io, budget) : await readFile(source, budget),
      });
    }
  }
  return texts;
}

async function filesAt(path: string): Promise<readonly string[]> {
  try {
    if (!(await stat(path)).isDirectory()) {
      return [path];
    }
    const names = (await readdir(path)).filter((name) => MANIFEST_FILE.test(name));
    if (names.length > 0) {
      return names.toSorted().map((name) => join(path, name));
    }
  } catch (error) {
    throw unreadable(path, error);
  }
  throw new KsvmError("ManifestInvalid", `Cannot read ${path}: the directory has no .yaml, .yml or .json file`);
}

interface Budget {
  leftBytes: number;
}

/** Read as a stream: the size of a pipe or of a device is not known before. */
async function readFile(path: string, budget: Budget): Promise<string> {
  try {
    const file = await open(path);
    return await collect(path, file.createReadStream(), budget);
  } catch (error) {
    throw error instanceof KsvmError ? error : unreadable(path, error);
  }
}

async function readStdin({ signal, stdin }: CliIo, budget: Budget): Promise<string> {
  if (stdin === undefined) {
    throw new KsvmError("ManifestInvalid", "Cannot read stdin: there is none");
  }
  const leave = (): void => (stdin as { destroy?: () => void }).destroy?.();
  signal.addEventListener("abort", leave, { once: true });
  try {
    return await collect("stdin", stdin, budget);
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof KsvmError ? error : unreadable("stdin", error);
  } finally {
    signal.removeEventListener("abort", leave);
  }
}

async function collect(source: string, stream: AsyncIterable<Buffer | string>, budget: Budget): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) {
    const bytes = Buffer.from(chunk);
    budget.leftBytes -= bytes.length;
    if (budget.leftBytes < 0) {
      const limit = `${MAX_MANIFEST_BYTES / 1_048_576} MiB`;
      throw new KsvmError("ManifestInvalid", `Cannot read ${source}: all files together are larger than ${limit}`);
    }
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function unreadable(path: string, cause: unknown): KsvmError {
  return new KsvmError("ManifestInvalid", `Cannot read ${path}: ${messageOf(cause)}`, { cause });
}
