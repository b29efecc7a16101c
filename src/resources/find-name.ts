import { resourceNameOf } from "../api/migration.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { CallOptions } from "../old/kube/call-options.ts";
import type { ApiClient } from "../old/kube/client.ts";
import { type ApiResource, type GroupVersion, listedVersions, resourcesOf } from "../old/kube/discovery.ts";
import { ApiError } from "../old/kube/errors.ts";
import { CRDS, apiVersionOf } from "../old/kube/resources.ts";
import { type DiscoveredVersion, isSubresource, SAME_OBJECTS } from "./migratable.ts";

/** A version of a group that cannot be read. */
interface Unread extends GroupVersion {
  /** As `group/version: why`. */
  readonly why: string;
}

/** What can be read of discovery. */
interface ReadVersions {
  readonly versions: readonly DiscoveredVersion[];
  readonly unread: readonly Unread[];
}

/**
 * The full name (`plural.group`, the plural alone in the core group) of a resource that a user names as kubectl accepts
 * it, see {@link resolveName}. A full name costs one request or two, any other one discovery of all groups.
 * @throws {KsvmError} ResourceNotFound, with the names of resources that are called similarly; ResourceAmbiguous where
 *   several have the name, or may have, or one may have it in a group that cannot be read; {ApiError}
 */
export async function findName(client: ApiClient, given: string, options: CallOptions = {}): Promise<string> {
  if (await isFullName(client, given, options)) {
    return given;
  }
  const { unread, versions } = await readVersions(client, await listedVersions(client.transport, options), options);
  const { isOpen, names, similar }: Resolution = resolveName(given, versions);
  const [name, ...others] = names;
  if (name === undefined) {
    throw notFound(
      given,
      similar,
      unread.filter((one) => mayBeIn(given, one)),
    );
  }
  if (others.length > 0) {
    const text = `Cannot tell which resource "${given}" is: ${names.join(", ")}; use the full name of one of them`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  if (isOpen && unread.length > 0) {
    const why = `discovery of another group cannot be read (${textOf(unread)})`;
    const text = `Cannot tell whether "${given}" is "${name}" alone: ${why}; use the full name`;
    throw new KsvmError("ResourceAmbiguous", text);
  }
  return name;
}

/** Also of a CRD that serves no version, which discovery does not show. */
async function isFullName(client: ApiClient, given: string, options: CallOptions): Promise<boolean> {
  if (given.includes(".") && (await client.findMetadata(CRDS, { name: given }, options)) !== undefined) {
    return true;
  }
  const [, ...rest] = given.split(".");
  const group = rest.join(".");
  const listed = (await listedVersions(client.transport, options)).filter((one) => one.group === group);
  const { versions } = await readVersions(client, listed, options);
  return resolveName(given, versions).names.includes(given);
}

async function readVersions(
  client: ApiClient,
  listed: readonly GroupVersion[],
  options: CallOptions,
): Promise<ReadVersions> {
  const versions: DiscoveredVersion[] = [];
  const unread: Unread[] = [];
  for (const one of listed) {
    try {
      versions.push({ ...one, resources: await resourcesOf(client.transport, one, options) });
    } catch (error) {
      if (!(error instanceof ApiError)) {
        throw error;
      }
      unread.push({ ...one, why: `${apiVersionOf(one.group, one.version)}: ${messageOf(error.said)}` });
    }
  }
  return { versions, unread };
}

function textOf(unread: readonly Unread[]): string {
  return unread.map(({ why }) => why).join("; ");
}

/** That a resource is not there is proven only where all that may have it was read: a caller may go on without it. */
function notFound(given: string, similar: readonly string[], unread: readonly Unread[]): KsvmError {
  const hint =
    similar.length === 0
      ? "expected the name of a CustomResourceDefinition (plural.group) or of a built-in resource, such as " +
        '"widgets.example.com", "deployments.apps" or "secrets"'
      : `did you mean ${similar.join(" or ")}?`;
  return unread.length === 0
    ? new KsvmError("ResourceNotFound", `Cannot find "${given}": ${hint}`)
    : new KsvmError(
        "ResourceAmbiguous",
        `Cannot tell whether there is "${given}": discovery of ${textOf(unread)} cannot be read; ${hint}`,
      );
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
  if (exact !== undefined) {
    return { names: [exact.name], similar: [], isOpen: false };
  }
  const { rest, word } = partsOf(given);
  const named = entries.filter(({ words }) => words.has(word));
  const meant = named.filter(({ group, version }) => rest === "" || isPlace(rest, group, version));
  const names = withoutSecondNames([...new Set(meant.map(({ name }) => name))]);
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
      .filter(({ name }) => !isSubresource(name))
      .map((entry) => ({
        name: resourceNameOf({ group, resource: entry.name }),
        group,
        version,
        words: wordsOf(entry),
      })),
  );
}

function wordsOf({ kind, name, shortNames, singularName }: ApiResource): ReadonlySet<string> {
  const words = [name, singularName ?? "", kind, ...(shortNames ?? [])];
  return new Set(words.filter((word) => word !== "").map((word) => word.toLowerCase()));
}

function partsOf(given: string): { readonly word: string; readonly rest: string } {
  const [word = "", ...rest] = given.toLowerCase().split(".");
  return { word, rest: rest.join(".") };
}

/** Whether a name, as {@link resolveName} takes it, may be that of a resource in a version of a group. */
function mayBeIn(given: string, { group, version }: Pick<DiscoveredVersion, "group" | "version">): boolean {
  const { rest } = partsOf(given);
  return rest === "" || isPlace(rest, group, version);
}

/** `group`, or `version.group`; of the core group, which has no name, `version`, or `version.` as kubectl writes it. */
function isPlace(rest: string, group: string, version: string): boolean {
  return group === "" ? rest === version || rest === `${version}.` : rest === group || rest === `${version}.${group}`;
}

/** Of two names of the same objects the first one is meant. */
function withoutSecondNames(names: readonly string[]): readonly string[] {
  return names.filter((name) => !names.includes(SAME_OBJECTS.get(name) ?? ""));
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
