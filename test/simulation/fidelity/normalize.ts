import type { CustomResourceDefinition } from "../../../src/api/crd.ts";
import { lastStorageChangeOf } from "../../../src/apiservers/settle.ts";
import type { PlayedLine } from "./play.ts";

/** A line in the words that both worlds share. */
export interface NormalLine {
  readonly title: string;
  readonly told: unknown;
  readonly stored?: unknown;
}

/**
 * Puts lines into words that do not depend on where they were played: uids are numbered as they appear, resourceVersions are
 * compared by their order, times by their form.
 */
export function normalLines(lines: readonly PlayedLine[]): readonly NormalLine[] {
  const names = new Names();
  return lines.map(({ anyMessage, stored, title, told }) => ({
    title,
    told: names.normal(told, { anyMessage }),
    ...(stored === undefined ? {} : { stored }),
  }));
}

interface Place {
  readonly anyMessage: boolean;
  /** Whether a resourceVersion here is that of a list or of a bookmark, which others move on at any time. */
  readonly isFloor?: boolean;
}

const UUID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g;
/** `metav1.Time` and `metav1.MicroTime`. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const MICRO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const TIMES = new Set([
  "creationTimestamp",
  "deletionTimestamp",
  "time",
  "lastTransitionTime",
  "renewTime",
  "acquireTime",
]);
/** What an API server adds to a `generateName` that ends so. */
const GENERATED = /(generated[.-])[bcdfghjklmnpqrstvwxz2456789]{5}\b/g;
/** Texts that tell two resourceVersions. */
const VERSIONS_IN_TEXT =
  /ResourceVersion in the precondition \((\d+)\) does not match the ResourceVersion in record \((\d+)\)|ResourceVersion in precondition: (\d+), ResourceVersion in object meta: (\d+)|too old resource version: (\d+) \((\d+)\)|Too large resource version: (\d+), current: (\d+)/g;
const WEBHOOK_URL = /https:\/\/127\.0\.0\.1:\d+/g;

class Names {
  readonly #uids = new Map<string, string>();
  /** In the order in which they were first seen. */
  readonly #versions: bigint[] = [];

  normal(value: unknown, place: Place): unknown {
    if (Array.isArray(value)) return value.map((one) => this.normal(one, place));
    if (typeof value === "string") return this.#text(value);
    if (typeof value !== "object" || value === null) return value;
    const { kind, type } = value as { readonly kind?: unknown; readonly type?: unknown };
    const isList = typeof kind === "string" && kind.endsWith("List");
    const entries = Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => {
        const isFloor = type === "BOOKMARK" || (isList ? key === "metadata" : place.isFloor === true);
        return [key, this.#field(key, one, { ...place, isFloor })];
      });
    return Object.fromEntries(entries) as unknown;
  }

  #field(key: string, value: unknown, place: Place): unknown {
    if (key === "managedFields") return entriesOf(value);
    if (typeof value !== "string") return this.normal(value, place);
    if (key === "message" && place.anyMessage) return "some text";
    if (key === "resourceVersion") return this.#version(value, place.isFloor === true);
    if (key === "continue") return value === "" ? "" : "a continue token";
    if (key === "caBundle") return "a bundle";
    if (TIMES.has(key)) return formOf(value);
    return this.#text(value);
  }

  #text(value: string): string {
    const named = value
      .replaceAll(GENERATED, "$1any")
      .replaceAll(UUID, (uid) => this.#uid(uid))
      .replaceAll(WEBHOOK_URL, "https://webhook");
    return named.replaceAll(VERSIONS_IN_TEXT, (found) =>
      found.replaceAll(/\d+/g, (version) => this.#version(version, true)),
    );
  }

  #uid(uid: string): string {
    const known = this.#uids.get(uid) ?? `uid${this.#uids.size + 1}`;
    this.#uids.set(uid, known);
    return known;
  }

  /** A floor is compared by the newest object that it is not older than. */
  #version(value: string, isFloor: boolean): string {
    if (!/^[1-9]\d*$/.test(value)) return value;
    const version = BigInt(value);
    const before = this.#versions.filter((one) => one <= version);
    const newest = before.reduce<bigint | undefined>((a, b) => (a !== undefined && a > b ? a : b), undefined);
    const newestName = newest === undefined ? "none" : `rv${this.#versions.indexOf(newest) + 1}`;
    if (isFloor) return `from ${newestName} on`;
    if (newest === version) return newestName;
    return `rv${this.#versions.push(version)}, after ${newestName}`;
  }
}

/** Whether ksvm takes an entry with these fields of `spec` for a change of the conversion. */
function isOfConversion(spec: unknown): boolean {
  const [before, at] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
  const { "f:versions": _, ...rest } = (spec ?? {}) as Readonly<Record<string, unknown>>;
  const managedFields = [
    { time: before, fieldsV1: { "f:spec": { "f:versions": {} } } },
    { time: at, fieldsV1: { "f:spec": rest } },
  ];
  const crd = { metadata: { creationTimestamp: before, managedFields } } as unknown as CustomResourceDefinition;
  return lastStorageChangeOf(crd) === Date.parse(at);
}

function formOf(value: string): string {
  if (TIME.test(value)) return "a time";
  return MICRO_TIME.test(value) ? "a time with microseconds" : value;
}

/**
 * As far as ksvm reads them: who owns `spec.versions` and `spec.conversion` since when, and that there are some. Their order depends on
 * whether a second has passed between two writes.
 */
function entriesOf(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const entries = value.map((entry: Readonly<Record<string, unknown>>) => {
    const { apiVersion, fieldsV1, manager, operation, subresource, time } = entry;
    const spec = (fieldsV1 as Readonly<Record<string, unknown>> | undefined)?.["f:spec"];
    const ownsVersions = typeof spec === "object" && spec !== null && Object.hasOwn(spec, "f:versions");
    const owns = { ownsVersions, ownsConversion: isOfConversion(spec) };
    return { apiVersion, manager, operation, subresource, ...owns, time: formOf(String(time)) };
  });
  return entries.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}
