import { resourceNameOf } from "../api/migration.ts";
import type { DiscoveredResource } from "../apiservers/converge.ts";
import { KsvmError } from "../errors.ts";
import type { Client } from "../kube/client.ts";
import { apiVersion, CRDS, type KubeObject, METADATA } from "../kube/objects.ts";
import { EXPECTED_NAME, readVersions } from "./discover.ts";
import { type DiscoveredVersion, type GroupVersion, SAME_OBJECTS } from "./migratable.ts";

/**
 * The full name (`plural.group`, the plural alone in the core group) of a resource that a user names as kubectl accepts
 * it, see {@link resolveName}. A full name costs one request or two, any other one discovery of all groups.
 * @throws {KsvmError} ResourceNotFound, with the names of resources that are called similarly; ResourceAmbiguous where
 *   several have the name, or may have, or one may have it in a group that cannot be read; {ApiError}
 */
export async function findName(client: Client, given: string, signal: AbortSignal): Promise<string> {
  // A CRD that serves no version is not in discovery.
  const path = `${CRDS}/${encodeURIComponent(given)}`;
  const isCrdName = /^[^.]+\.[^.]/.test(given);
  if (isCrdName && (await client.find<KubeObject>(path, { accept: METADATA, signal })) !== undefined) return given;
  const group = given.split(".").slice(1).join(".");
  const ofGroup = await readVersions(client, { group, signal });
  if (resolveName(given, ofGroup.versions).names.includes(given)) return given;

  const { unread, versions } = await readVersions(client, { signal });
  const { isOpen, names, similar } = resolveName(given, versions);
  const why = (of: typeof unread): string => of.map((one) => `${apiVersion(one)}: ${one.reason}`).join("; ");
  const [name, ...others] = names;
  if (name === undefined) {
    const hint = similar.length === 0 ? EXPECTED_NAME : `did you mean ${similar.join(" or ")}?`;
    // That a resource is not there is proven only where all that may have it was read: a caller may go on without it.
    const open = unread.filter((one) => mayBeIn(given, one));
    if (open.length === 0) throw new KsvmError("ResourceNotFound", `Cannot find "${given}": ${hint}`);
    const text = `Cannot tell whether there is "${given}": discovery of ${why(open)} cannot be read; ${hint}`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  if (others.length > 0) {
    const text = `Cannot tell which resource "${given}" is: ${names.join(", ")}; use the full name of one of them`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  if (isOpen && unread.length > 0) {
    const reason = `discovery of another group cannot be read (${why(unread)})`;
    const text = `Cannot tell whether "${given}" is "${name}" alone: ${reason}; use the full name`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  return name;
}

/** What a name stands for. */
export interface Resolution {
  /** `plural.group` of each resource that it may mean, the plural alone in the core group: none, one, or several. */
  readonly names: readonly string[];
  /** `plural.group` of resources whose names are similar, where none has this one. */
  readonly similar: readonly string[];
  /** Whether the name has no group, so that a group of which nothing is known may have a resource of this name too. */
  readonly isOpen: boolean;
}

/** How many similar names are shown. */
const MAX_SIMILAR = 3;

/**
 * Finds a resource by a name as kubectl accepts it: plural, singular, short name or kind, alone or followed by the
 * group, or by the version and the group. `plural.group`, and the plural alone in the core group, stand for that
 * resource whatever else has the name: what a script names today is what it names when another CRD has come. Kubectl
 * takes the first of several; here they are all returned.
 */
export function resolveName(given: string, versions: readonly DiscoveredVersion[]): Resolution {
  const entries = entriesOf(versions);
  const exact = entries.find(({ name }) => name === given);
  if (exact !== undefined) return { names: [exact.name], similar: [], isOpen: false };
  const { rest, word } = partsOf(given);
  const named = entries.filter(({ words }) => words.has(word));
  const meant = named.filter(({ group, version }) => rest === "" || isPlace(rest, group, version));
  const all = [...new Set(meant.map(({ name }) => name))];
  // Of two names of the same objects the first one is meant.
  const names = all.filter((name) => !all.includes(SAME_OBJECTS.get(name) ?? ""));
  return { names, similar: names.length === 0 ? similarTo(word, named, entries) : [], isOpen: rest === "" };
}

interface Entry {
  /** `plural.group`. */
  readonly name: string;
  readonly group: string;
  readonly version: string;
  /** All that its objects are called, in lower case. */
  readonly words: ReadonlySet<string>;
}

function entriesOf(versions: readonly DiscoveredVersion[]): readonly Entry[] {
  return versions.flatMap(({ group, resources, version }) =>
    resources
      .filter(({ name }) => !name.includes("/"))
      .map((entry) => ({
        name: resourceNameOf({ group, resource: entry.name }),
        group,
        version,
        words: wordsOf(entry),
      })),
  );
}

function wordsOf({ kind, name, shortNames, singularName }: DiscoveredResource): ReadonlySet<string> {
  const words = [name, singularName ?? "", kind, ...(shortNames ?? [])];
  return new Set(words.filter((word) => word !== "").map((word) => word.toLowerCase()));
}

function partsOf(given: string): { readonly word: string; readonly rest: string } {
  const [word = "", ...rest] = given.toLowerCase().split(".");
  return { word, rest: rest.join(".") };
}

/** Whether a name, as {@link resolveName} takes it, may be that of a resource in a version of a group. */
function mayBeIn(given: string, { group, version }: GroupVersion): boolean {
  const { rest } = partsOf(given);
  return rest === "" || isPlace(rest, group, version);
}

/** `group`, or `version.group`; of the core group, which has no name, `version`, or `version.` as kubectl writes it. */
function isPlace(rest: string, group: string, version: string): boolean {
  return group === "" ? rest === version || rest === `${version}.` : rest === group || rest === `${version}.${group}`;
}

/** Those of this name in another group first, then those whose plural differs by a letter or two. */
function similarTo(word: string, named: readonly Entry[], entries: readonly Entry[]): readonly string[] {
  const near = entries.filter(({ words }) => [...words].some((other) => isNear(word, other)));
  return [...new Set([...named, ...near].map(({ name }) => name))].slice(0, MAX_SIMILAR);
}

const MIN_NEAR_LENGTH = 4;
const MAX_EDITS = 2;

function isNear(a: string, b: string): boolean {
  const shortest = Math.min(a.length, b.length);
  const limit = shortest < 2 * MIN_NEAR_LENGTH ? 1 : MAX_EDITS;
  return shortest >= MIN_NEAR_LENGTH && Math.abs(a.length - b.length) <= limit && editsBetween(a, b) <= limit;
}

/** How many letters have to be changed, added or taken away. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [i, letter] of a.split("").entries()) {
    const next = [i + 1];
    for (const [j, other] of b.split("").entries()) {
      const changed = (row[j] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(changed, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
