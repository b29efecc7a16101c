import { open, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { parse, type Tags } from "yaml";
import { type JsonObject, listIn, objectIn, textIn } from "../../api/json-fields.ts";
import { KsvmError, messageOf } from "../../errors.ts";
import { MIGRATING, OWNER } from "../../freeze/rule.ts";
import type { CrdManifest } from "../../inventory/steps.ts";
import { LEAVING_VERSIONS } from "../../migrator/rewrite.ts";
import type { CliIo } from "../render/io.ts";

/** The text of one file, with its path, or of `stdin`. */
export interface ManifestText {
  readonly source: string;
  readonly text: string;
}

/** Stands for stdin, as with kubectl. */
const STDIN = "-";
/** The files of a directory that kubectl reads, too. */
const MANIFEST_FILE = /\.(?:ya?ml|json)$/i;

/** The most bytes of all files together. */
const MAX_MANIFEST_BYTES = 67_108_864;
/** The most characters of one YAML document: parsing takes some 150 times that in memory. JSON may be larger. */
const MAX_YAML_LENGTH = 8_388_608;
/** The annotations of a run on a CRD. */
const OF_RUNS: ReadonlySet<string> = new Set([MIGRATING, OWNER, LEAVING_VERSIONS]);
/** Without this word a document holds no CRD, and is not parsed: there may be thousands of others. */
const CRD_KIND = "CustomResourceDefinition";
const YAML_OPTIONS = {
  version: "1.1",
  // Warnings are left out, errors are thrown.
  logLevel: "error",
  // The last one counts, as for kubectl.
  uniqueKeys: false,
  // Kubernetes' tools read YAML 1.1, but no times and no numbers to the base of 60.
  customTags: (tags: Tags): Tags =>
    tags.filter((tag) => typeof tag === "string" || !(tag.tag.endsWith(":timestamp") || tag.format === "TIME")),
} as const;

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

/**
 * Reads the CRDs of files with one or many YAML or JSON documents, each an object or a list of objects.
 * @returns the CRDs, and how many objects of other kinds there are
 * @throws {KsvmError} ManifestInvalid where a document cannot be read, a CRD has no name or is there twice, or there is
 * no CRD
 */
export function readManifests(texts: readonly ManifestText[]): { crds: readonly CrdManifest[]; others: number } {
  const crds = new Map<string, CrdManifest>();
  let others = 0;
  for (const { source, text } of texts) {
    for (const object of objectsIn(source, text)) {
      if (object["kind"] !== CRD_KIND || textIn(object["apiVersion"])?.startsWith("apiextensions.k8s.io/") !== true) {
        others++;
        continue;
      }
      const crd = crdIn(source, object);
      const first = crds.get(crd.name)?.source;
      if (first !== undefined) throw invalid(source, `"${crd.name}" is there twice, the first time in ${first}`);
      crds.set(crd.name, crd);
    }
  }
  if (crds.size === 0) {
    const where = texts.length === 1 ? (texts[0]?.source ?? "") : `${texts.length} files`;
    throw invalid(where, `no ${CRD_KIND} is in there, and ${others} objects of other kinds`);
  }
  return { crds: [...crds.values()], others };
}

/** The objects of a text, in their order. One of another kind that is not parsed is empty. */
function objectsIn(source: string, text: string): readonly JsonObject[] {
  // As Kubernetes' tools part a stream: `---` at the beginning of a line.
  return text
    .replace(/^\uFEFF/, "")
    .split(/^---(?=\s|$)/m)
    .filter((document) => /^\s*[^\s#]/m.test(document))
    .flatMap((document) => (document.includes(CRD_KIND) ? itemsOf(parsed(source, document)) : [{}]));
}

function parsed(source: string, document: string): unknown {
  if (/^\s*\{/.test(document)) {
    try {
      return JSON.parse(document);
    } catch {
      // YAML in flow style begins like this too.
    }
  }
  if (document.length > MAX_YAML_LENGTH) {
    const limit = `${MAX_YAML_LENGTH / 1_048_576} MiB`;
    throw invalid(source, `a YAML document is larger than ${limit}; part it with ---, or use JSON`);
  }
  try {
    // Aliases may make a value that holds itself, which no request can carry.
    return JSON.parse(JSON.stringify(parse(document, YAML_OPTIONS) ?? null));
  } catch (error) {
    // After its first line the message shows the text.
    const [problem = ""] = error instanceof Error ? error.message.split("\n") : [];
    throw invalid(source, `a document is not valid YAML: ${problem.replace(/:$/, "")}`, error);
  }
}

/** A `List` holds its objects in `items`. What one of them lacks of kind and apiVersion it has from a typed list. */
function itemsOf(value: unknown): readonly JsonObject[] {
  const object = objectIn(value);
  if (object === undefined) return [];
  const { apiVersion, items, kind } = object;
  if (textIn(kind)?.endsWith("List") !== true || !Array.isArray(items)) return [object];
  const type = { apiVersion, kind: textIn(kind)?.slice(0, -"List".length) };
  return items.flatMap((item) => itemsOf({ ...type, ...objectIn(item) }));
}

function crdIn(source: string, object: JsonObject): CrdManifest {
  const metadata = objectIn(object["metadata"]) ?? {};
  const name = textIn(metadata["name"]) ?? "";
  if (name === "") throw invalid(source, `a ${CRD_KIND} has no metadata.name`);
  const spec = objectIn(object["spec"]) ?? {};
  const named = listIn(spec["versions"]).filter((one) => typeof objectIn(one)?.["name"] === "string");
  const versions = named as readonly V1CustomResourceDefinitionVersion[];
  const [stored, ...further] = versions.filter(({ storage }) => storage);
  return {
    name,
    source,
    apiVersion: textIn(object["apiVersion"]) ?? "",
    labels: objectIn(metadata["labels"]) ?? {},
    annotations: Object.fromEntries(
      // A file that was exported during a run has those of that run.
      Object.entries(objectIn(metadata["annotations"]) ?? {}).filter(([key]) => !OF_RUNS.has(key)),
    ),
    spec,
    versions,
    target: further.length === 0 ? (stored?.name ?? "") : "",
  };
}

function invalid(source: string, problem: string, cause?: unknown): KsvmError {
  return new KsvmError("ManifestInvalid", `Cannot read ${source}: ${problem}`, { cause });
}
