import { createHash } from "node:crypto";
import { listIn, objectIn, textIn } from "../../api/json-fields.ts";
import { fieldSpans, type Span } from "../json/json-fields.ts";
import { CLOSE_BRACKET, OPEN_BRACKET, skipSpace } from "../json/json-scan.ts";

/** Which object, in which state. */
export interface ObjectIdentity {
  readonly name: string;
  /** Missing where the resource is cluster-scoped. */
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
}

/**
 * What is kept of an object that a page lists, or that a write returns: a few short fields, however large its
 * annotations and managedFields are.
 */
export interface ListedObject extends ObjectIdentity {
  /** Missing for kinds whose objects have none, such as Secrets. */
  readonly generation?: number;
  /** Whether `metadata.managedFields` has an entry. A server-side apply adds entries to an object that has none. */
  readonly hasManagedFields: boolean;
  /**
   * Of the metadata that admission could change: labels, annotations, finalizers, ownerReferences, and managedFields,
   * which show a change of any other field; and of the status, where it was asked for. Comparable between two answers for the same
   * version of the same object; it proves nothing.
   */
  readonly digest: string;
  /** The API versions that `metadata.managedFields` names, each once; only where they were asked for. */
  readonly fieldVersions?: readonly string[];
}

/** What is read of an object beside the short fields. */
export interface ListedObjectOptions {
  /** @default false */
  readonly fieldVersions?: boolean | undefined;
  /** Has the digest cover the status. @default false */
  readonly status?: boolean | undefined;
}

/**
 * The largest JSON text of an object that is read. An API server takes requests of up to 3 MB, and etcd values of up to
 * 1.5 MiB unless it is configured otherwise; what is stored in another encoding may be several times as long as JSON.
 */
export const MAX_OBJECT_BYTES = 32 * 2 ** 20;

/** Text that holds no object with metadata. */
export class ObjectUnreadable extends Error {
  override readonly name = "ObjectUnreadable";
}

const IDENTITY_FIELDS = ["name", "namespace", "uid", "resourceVersion", "generation"] as const;
const DIGESTED_FIELDS = ["annotations", "finalizers", "labels", "managedFields", "ownerReferences"] as const;
const METADATA_FIELDS = [...IDENTITY_FIELDS, ...DIGESTED_FIELDS];

/** Characters of a digest: 96 bits are far more than two states of one object need to differ. */
const DIGEST_LENGTH = 16;

/**
 * Reads the object that a text holds, without building what is not kept.
 * @throws {ObjectUnreadable} where the text is not valid JSON, or has no metadata with name, uid and resourceVersion.
 */
export function listedObjectOf(bytes: Buffer, options?: ListedObjectOptions): ListedObject {
  const parts = partsOf(bytes, options);
  const metadataAt = parts?.get("metadata")?.start;
  const spans = metadataAt === undefined ? undefined : fieldSpans(bytes, metadataAt, METADATA_FIELDS);
  if (spans === undefined) {
    throw new ObjectUnreadable("expected the JSON text of an object with metadata");
  }
  const textOf = (name: (typeof IDENTITY_FIELDS)[number]): string | undefined => {
    const value = valueOf(bytes, spans.get(name));
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const [name, uid, resourceVersion] = [textOf("name"), textOf("uid"), textOf("resourceVersion")];
  if (name === undefined || uid === undefined || resourceVersion === undefined) {
    throw new ObjectUnreadable("expected metadata with name, uid and resourceVersion");
  }
  const namespace = textOf("namespace");
  const generation = valueOf(bytes, spans.get("generation"));
  return {
    name,
    ...(namespace === undefined ? {} : { namespace }),
    uid,
    resourceVersion,
    ...(typeof generation === "number" ? { generation } : {}),
    hasManagedFields: hasItems(bytes, spans.get("managedFields")),
    digest: digestOf(bytes, spans, parts),
    ...fieldVersionsOf(bytes, spans, options),
  };
}

function partsOf(bytes: Buffer, { status = false }: ListedObjectOptions = {}): ReadonlyMap<string, Span> | undefined {
  return fieldSpans(bytes, skipSpace(bytes, 0), status ? ["metadata", "status"] : ["metadata"]);
}

function fieldVersionsOf(
  bytes: Buffer,
  spans: ReadonlyMap<string, Span>,
  { fieldVersions = false }: ListedObjectOptions = {},
): Pick<ListedObject, "fieldVersions"> {
  if (!fieldVersions) {
    return {};
  }
  const entries = listIn(valueOf(bytes, spans.get("managedFields")));
  return { fieldVersions: [...new Set(entries.flatMap((entry) => textIn(objectIn(entry)?.["apiVersion"]) ?? []))] };
}

function valueOf(bytes: Buffer, span: Span | undefined): unknown {
  return span === undefined ? undefined : (JSON.parse(bytes.toString("utf8", span.start, span.end)) as unknown);
}

function hasItems(bytes: Buffer, span: Span | undefined): boolean {
  return (
    span !== undefined &&
    bytes[span.start] === OPEN_BRACKET &&
    bytes[skipSpace(bytes, span.start + 1)] !== CLOSE_BRACKET
  );
}

/** The API server encodes maps with sorted keys, so equal fields are equal bytes. */
function digestOf(bytes: Buffer, spans: ReadonlyMap<string, Span>, parts: ReturnType<typeof partsOf>): string {
  const hash = createHash("sha256");
  const digested = DIGESTED_FIELDS.map((field) => [field, spans.get(field)] as const);
  const status = ["status", parts?.get("status")] as const;
  for (const [field, span] of [...digested, status]) {
    if (span !== undefined) {
      hash.update(`${field}:`).update(bytes.subarray(span.start, span.end)).update("\n");
    }
  }
  return hash.digest("base64url").slice(0, DIGEST_LENGTH);
}
