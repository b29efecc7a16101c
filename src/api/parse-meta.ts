import { countIn, listIn, objectIn, textIn, textsIn, timeIn, withoutUndefined } from "./json-fields.ts";
import type { ObjectMeta, OwnerReference } from "./meta.ts";

/** An object that is left out, as far as it can be named. */
export interface Unreadable {
  /** Empty where it has none that an API server would take. */
  readonly name: string;
  readonly uid: string;
  /** The first thing that is wrong with it: a path and words of this program, never a value of the object. */
  readonly problem: string;
}

/** What a parser makes of a value: the object with the fields that it knows, or what is wrong with it. */
export type Parsed<T> = {
  /** Of which object; its uid is empty where it has none. */
  readonly uid: string;
} & (
  | {
      readonly object: T;
      /** Paths of optional fields that were left out because they cannot be read. */
      readonly ignored: readonly string[];
      readonly unreadable?: undefined;
    }
  | { readonly object?: undefined; readonly ignored: readonly []; readonly unreadable: Unreadable }
);

/** A name longer than this no API server takes. */
const MAX_NAME_LENGTH = 253;
// The path of an object is built of its name, and terminals and logs show it.
const UNSAFE_IN_NAME = /[\p{C}\p{Zl}\p{Zp}/%]/u;

/**
 * Whether an object may have this name: it may be a segment of a path.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apimachinery/pkg/api/validation/path/name.go
 */
function isObjectName(name: string): boolean {
  const isSegment = name !== "" && name !== "." && name !== "..";
  return isSegment && name.length <= MAX_NAME_LENGTH && !UNSAFE_IN_NAME.test(name);
}

/** Reads the metadata; `undefined` where it has no name, uid or resourceVersion. managedFields are left out. */
export function metaIn(value: unknown): ObjectMeta | undefined {
  const fields = objectIn(value) ?? {};
  const [name, uid, resourceVersion] = [
    textIn(fields["name"]),
    textIn(fields["uid"]),
    textIn(fields["resourceVersion"]),
  ];
  if (name === undefined || !isObjectName(name) || !isFilled(uid) || !isFilled(resourceVersion)) {
    return undefined;
  }
  return withoutUndefined<ObjectMeta>({
    name,
    uid,
    resourceVersion,
    namespace: textIn(fields["namespace"]),
    generation: countIn(fields["generation"]),
    creationTimestamp: timeIn(fields["creationTimestamp"]),
    deletionTimestamp: timeIn(fields["deletionTimestamp"]),
    ownerReferences: Array.isArray(fields["ownerReferences"]) ? ownersIn(fields["ownerReferences"]) : undefined,
    labels: textsIn(fields["labels"]),
    annotations: textsIn(fields["annotations"]),
  });
}

function isFilled(value: string | undefined): value is string {
  return value !== undefined && value !== "";
}

function ownersIn(value: unknown): readonly OwnerReference[] {
  return listIn(value).flatMap((one) => {
    const fields = objectIn(one) ?? {};
    const [apiVersion, kind] = [textIn(fields["apiVersion"]), textIn(fields["kind"])];
    const [name, uid] = [textIn(fields["name"]), textIn(fields["uid"])];
    const isWhole = apiVersion !== undefined && kind !== undefined && name !== undefined && uid !== undefined;
    return isWhole ? [{ apiVersion, kind, name, uid }] : [];
  });
}

/** What is said of an object that is left out. Without a whole identity it is named as far as that goes. */
export function unreadable(
  value: unknown,
  problem: string,
): { readonly uid: string; readonly ignored: readonly []; readonly unreadable: Unreadable } {
  const fields = objectIn(objectIn(value)?.["metadata"]) ?? {};
  const name = textIn(fields["name"]) ?? "";
  const uid = textIn(fields["uid"]) ?? "";
  return { uid, ignored: [], unreadable: { name: isObjectName(name) ? name : "", uid, problem } };
}
