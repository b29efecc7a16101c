import type { V1CustomResourceDefinitionVersion } from "@kubernetes/client-node";
import { parseAllDocuments, type Tags } from "yaml";
import { type JsonObject, listIn, objectIn, textIn } from "../api/json-fields.ts";
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
  /** Without what only the API server sets. */
  readonly metadata: JsonObject;
  readonly spec: JsonObject;
  /** `spec.versions`, as far as they have names: the API server judges the rest. */
  readonly versions: readonly V1CustomResourceDefinitionVersion[];
  /** The storage version; empty where there is none, which the API server refuses. */
  readonly target: string;
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
const CRD_GROUP = "apiextensions.k8s.io";
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
 * @throws {KsvmError} ManifestInvalid where a document cannot be read, a CRD has no name or is there twice, or there is
 * no CRD
 */
export function readManifests(texts: readonly ManifestText[]): Manifests {
  const crds = new Map<string, CrdManifest>();
  let others = 0;
  for (const { source, text } of texts) {
    for (const object of objectsIn(source, text)) {
      if (object?.["kind"] !== CRD_KIND || textIn(object["apiVersion"])?.startsWith(`${CRD_GROUP}/`) !== true) {
        others++;
        continue;
      }
      const crd = crdIn(source, object);
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
  // As Kubernetes' tools part a stream: `---` at the beginning of a line.
  for (const document of text.replace(/^\uFEFF/, "").split(/^---(?=\s|$)/m)) {
    const isEmpty = !/^\s*[^\s#]/m.test(document);
    if (isEmpty) continue;
    if (document.includes(CRD_KIND)) for (const value of parsed(source, document)) yield* itemsOf(value);
    else yield undefined;
  }
}

function parsed(source: string, document: string): readonly unknown[] {
  if (/^\s*\{/.test(document)) {
    try {
      return [JSON.parse(document)];
    } catch {
      // YAML in flow style begins like this too.
    }
  }
  if (document.length > MAX_YAML_LENGTH) {
    const limit = `${MAX_YAML_LENGTH / 1_048_576} MiB`;
    throw invalid(source, `a YAML document is larger than ${limit}; part it with ---, or use JSON`);
  }
  try {
    return [...parseAllDocuments(document, YAML_OPTIONS)].map((one) => {
      const [error] = one.errors;
      if (error !== undefined) throw error;
      // Aliases may make a value that holds itself, which no request can carry.
      return JSON.parse(JSON.stringify(one.toJS())) as unknown;
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
  if (object === undefined) return;
  const { apiVersion, items, kind } = object;
  if (textIn(kind)?.endsWith("List") !== true || !Array.isArray(items)) {
    yield object;
    return;
  }
  const type = { apiVersion, kind: textIn(kind)?.slice(0, -"List".length) };
  for (const item of items) {
    const given = objectIn(item);
    const isUntyped = given !== undefined && !textIn(given["apiVersion"]) && !textIn(given["kind"]);
    yield* itemsOf(isUntyped ? { ...given, ...type } : item);
  }
}

function crdIn(source: string, object: JsonObject): CrdManifest {
  const metadata = objectIn(object["metadata"]) ?? {};
  const name = textIn(metadata["name"]) ?? "";
  if (name === "") throw invalid(source, `a ${CRD_KIND} has no metadata.name`);
  const spec = objectIn(object["spec"]) ?? {};
  const named = listIn(spec["versions"]).filter((one) => typeof objectIn(one)?.["name"] === "string");
  const versions = named as readonly V1CustomResourceDefinitionVersion[];
  return {
    name,
    source,
    apiVersion: textIn(object["apiVersion"]) ?? "",
    metadata: Object.fromEntries(Object.entries(metadata).filter(([field]) => !SERVER_FIELDS.has(field))),
    spec,
    versions,
    target: versions.find(({ storage }) => storage)?.name ?? "",
  };
}

function invalid(source: string, problem: string, cause?: unknown): KsvmError {
  return new KsvmError("ManifestInvalid", `Cannot read ${source}: ${problem}`, { cause });
}
