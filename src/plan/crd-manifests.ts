import { parseAllDocuments, type Tags } from "yaml";
import { listIn, objectIn, textIn, type JsonObject } from "../api/json-fields.ts";
import { KsvmError } from "../errors.ts";

/** The text of one file, or of stdin. */
export interface ManifestText {
  /** The path of the file, or `stdin`. */
  readonly source: string;
  readonly text: string;
}

/** A CRD as a file has it. */
export interface CrdManifest {
  readonly name: string;
  readonly source: string;
  /** `apiextensions.k8s.io/v1`, or an older version. */
  readonly apiVersion: string;
  /** As it would be applied: without status, and without what only the API server sets. */
  readonly object: JsonObject;
  /** `spec.versions`, as far as they can be read: the API server judges the rest. */
  readonly versions: readonly ManifestVersion[];
}

/** One entry of `spec.versions` in a file. */
export interface ManifestVersion {
  readonly name: string;
  readonly storage: boolean;
  readonly served: boolean;
}

/** What files hold. */
export interface Manifests {
  readonly crds: readonly CrdManifest[];
  /** How many objects of other kinds there are. */
  readonly others: number;
}

/** The most bytes of all files together. */
export const MAX_MANIFEST_BYTES = 67_108_864;
/** The most characters of one YAML document: parsing takes some 150 times that in memory. JSON may be larger. */
const MAX_YAML_LENGTH = 8_388_608;
/** Without this word a document holds no CRD, and is not parsed: there may be thousands of others. */
const CRD_KIND = "CustomResourceDefinition";
/** A kind that may be that word in other letters: with escapes, or as an alias, or behind a tag. */
const ODD_KIND = /\bkind["']?\s*:\s*(?:"[^"\n]*\\|[&*!|>])/;
const CRD_GROUP = "apiextensions.k8s.io";
const LIST = "List";
/** Only the API server sets these, and refuses some of them. */
const SERVER_FIELDS = new Set(["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"]);
/** Kubernetes' tools read YAML 1.1, but no times and no numbers to the base of 60. */
const UNKNOWN_TAGS = new Set(["timestamp", "intTime", "floatTime"]);
const YAML_OPTIONS = {
  version: "1.1",
  logLevel: "silent",
  customTags: (tags: Tags): Tags => tags.filter((tag) => !isTimeTag(tag)),
} as const;

function isTimeTag(tag: Tags[number]): boolean {
  return typeof tag === "string"
    ? UNKNOWN_TAGS.has(tag)
    : tag.tag === "tag:yaml.org,2002:timestamp" || tag.format === "TIME";
}

/**
 * Reads the CRDs of files with one or many YAML or JSON documents, each an object or a list of objects.
 * @throws {KsvmError} ManifestInvalid where a document cannot be read, holds a CRD without a name, or one that another
 *   document
 *   holds too; and where no CRD is found.
 */
export function readManifests(texts: readonly ManifestText[]): Manifests {
  const crds = new Map<string, CrdManifest>();
  let others = 0;
  for (const { source, text } of texts) {
    for (const object of objectsIn(source, text)) {
      if (object === undefined || !isCrd(object)) {
        others++;
        continue;
      }
      const crd = crdManifestOf(source, object);
      const known = crds.get(crd.name);
      if (known !== undefined) {
        throw invalid(source, `"${crd.name}" is there twice, the first time in ${known.source}`);
      }
      crds.set(crd.name, crd);
    }
  }
  if (crds.size === 0) {
    const where = texts.length === 1 ? (texts[0]?.source ?? "") : `${texts.length} files`;
    throw invalid(where, `no ${CRD_KIND} is in there, and ${others} objects of other kinds`);
  }
  return { crds: [...crds.values()], others };
}

/** The objects of a text, in their order; `undefined` stands for one of another kind that was not parsed. */
function* objectsIn(source: string, text: string): Generator<JsonObject | undefined, void> {
  for (const document of documentsIn(text)) {
    if (!document.includes(CRD_KIND) && !ODD_KIND.test(document)) {
      yield undefined;
      continue;
    }
    for (const value of parsed(source, document)) {
      yield* itemsOf(value);
    }
  }
}

/** As Kubernetes' tools part a stream: `---` at the beginning of a line. Those without content are left out. */
function documentsIn(text: string): readonly string[] {
  const parts = text.replace(/^\uFEFF/, "").split(/^---(?=\s|$)/m);
  return parts.filter((part) => /^\s*[^\s#]/m.test(part));
}

function isJson(text: string): boolean {
  return /^\s*\{/.test(text);
}

function parsed(source: string, document: string): readonly unknown[] {
  if (isJson(document)) {
    try {
      return [JSON.parse(document)];
    } catch {
      // YAML in flow style begins like this too.
    }
  }
  if (document.length > MAX_YAML_LENGTH) {
    throw invalid(
      source,
      `a YAML document is larger than ${MAX_YAML_LENGTH / 1_048_576} MiB; part it with ---, or use JSON`,
    );
  }
  return parsedYaml(source, document);
}

function parsedYaml(source: string, text: string): readonly unknown[] {
  try {
    return [...parseAllDocuments(text, YAML_OPTIONS)].map((document) => {
      const [error] = document.errors;
      if (error !== undefined) {
        throw error;
      }
      // Aliases may make a value that holds itself, which no request can carry.
      return JSON.parse(JSON.stringify(document.toJS())) as unknown;
    });
  } catch (error) {
    // After its first line the message shows the text.
    const [problem = ""] = error instanceof Error ? error.message.split("\n") : [];
    throw invalid(source, `a document is not valid YAML: ${problem.replace(/:$/, "")}`, error);
  }
}

/**
 * A `List` holds its objects in `items`. API servers leave out kind and apiVersion of those of a typed list, and
 * kubectl takes both from the list.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/helpers.go
 */
function* itemsOf(value: unknown): Generator<JsonObject, void> {
  const object = objectIn(value);
  if (object === undefined) {
    return;
  }
  const { apiVersion, items, kind } = object;
  if (textIn(kind)?.endsWith(LIST) === true && Array.isArray(items)) {
    const typed = { apiVersion, kind: textIn(kind)?.slice(0, -LIST.length) };
    for (const item of items) {
      const given = objectIn(item);
      yield* itemsOf(given !== undefined && isUntyped(given) ? { ...given, ...typed } : item);
    }
  } else {
    yield object;
  }
}

function isUntyped({ apiVersion, kind }: JsonObject): boolean {
  return (textIn(apiVersion) ?? "") === "" && (textIn(kind) ?? "") === "";
}

function isCrd({ apiVersion, kind }: JsonObject): boolean {
  return kind === CRD_KIND && textIn(apiVersion)?.startsWith(`${CRD_GROUP}/`) === true;
}

function crdManifestOf(source: string, given: JsonObject): CrdManifest {
  const { status: _, ...object } = given;
  const metadata = objectIn(object["metadata"]) ?? {};
  const name = textIn(metadata["name"]);
  if (name === undefined || name === "") {
    throw invalid(source, `a ${CRD_KIND} has no metadata.name`);
  }
  const kept = Object.fromEntries(Object.entries(metadata).filter(([field]) => !SERVER_FIELDS.has(field)));
  return {
    name,
    source,
    apiVersion: textIn(object["apiVersion"]) ?? "",
    object: { ...object, metadata: kept },
    versions: listIn(objectIn(object["spec"])?.["versions"]).flatMap(versionOf),
  };
}

function versionOf(value: unknown): readonly ManifestVersion[] {
  const { name, served, storage } = objectIn(value) ?? {};
  return typeof name === "string" ? [{ name, served: served === true, storage: storage === true }] : [];
}

function invalid(source: string, problem: string, cause?: unknown): KsvmError {
  return new KsvmError("ManifestInvalid", `Cannot read ${source}: ${problem}`, { cause });
}
