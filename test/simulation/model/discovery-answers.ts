import { apiVersionOf } from "../../../src/kube/resources.ts";
import { PathNotServed } from "./answers.ts";
import { builtInKinds } from "./built-in-kinds.ts";
import type { ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";

const READ_VERBS = ["delete", "deletecollection", "get", "list", "watch"];
const BUILT_IN_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const STATUS_VERBS = ["get", "patch", "update"];

/** Groups that have no object of their own here, and are asked for. */
const AUTHORIZATION = { group: "authorization.k8s.io", version: "v1" };

/** As {@link discoveryAnswer}, as JSON text. @throws {PathNotServed} */
export function discoveryText(context: ServerContext, path: string): string {
  const { answers } = context.discovery;
  let text = answers.get(path);
  if (text === undefined) answers.set(path, (text = JSON.stringify(discoveryAnswer(context, path))));
  return text;
}

/** Answers `/api`, `/apis`, `/apis/GROUP`, `/api/v1` and `/apis/GROUP/VERSION`. @throws {PathNotServed} */
function discoveryAnswer(context: ServerContext, path: string): object {
  const [, root, ...rest] = path.split("/").filter((part, at, parts) => part !== "" || at < parts.length - 1);
  if (root === "api" && rest.length === 0)
    return { kind: "APIVersions", versions: ["v1"], serverAddressByClientCIDRs: [] };
  if (root === "api") return resourcesAnswer(context, "", rest[0] ?? "");
  if (root !== "apis") throw new PathNotServed();
  const [group, version] = rest;
  if (group === undefined)
    return { kind: "APIGroupList", apiVersion: "v1", groups: groupsOf(context).map(groupAnswer) };
  if (version !== undefined) return resourcesAnswer(context, group, version);
  const found = groupsOf(context).find(([name]) => name === group);
  if (found === undefined) throw new PathNotServed();
  return { kind: "APIGroup", apiVersion: "v1", ...groupAnswer(found) };
}

type Group = readonly [name: string, versions: ReadonlySet<string>];

/** The groups with their versions, the preferred one first. */
function groupsOf(context: ServerContext): readonly Group[] {
  const groups = new Map<string, Set<string>>();
  const add = (group: string, version: string): void => {
    const versions = groups.get(group) ?? new Set<string>();
    groups.set(group, versions.add(version));
  };
  for (const { group, version } of builtInKinds(context.release).values()) if (group !== "") add(group, version);
  add(AUTHORIZATION.group, AUTHORIZATION.version);
  const custom = new Map<string, Set<string>>();
  for (const { facts } of context.discovery.all()) {
    if (!facts.isEstablished) continue;
    for (const { name, served } of facts.versions) {
      if (served) custom.set(facts.group, (custom.get(facts.group) ?? new Set()).add(name));
    }
  }
  for (const [group, versions] of custom) {
    for (const version of [...versions].sort(byVersionPriority)) add(group, version);
  }
  return [...groups];
}

function groupAnswer([name, names]: Group): object {
  const versions = [...names].map((version) => ({ groupVersion: `${name}/${version}`, version }));
  return { name, versions, preferredVersion: versions[0] };
}

function resourcesAnswer(context: ServerContext, group: string, version: string): object {
  const kinds = [...kindsIn(context, group, version)];
  const isKnown = kinds.length > 0 || (group === AUTHORIZATION.group && version === AUTHORIZATION.version);
  if (!isKnown) throw new PathNotServed();
  const resources = kinds.flatMap(([kind, verbs]) => resourceAnswers(kind, verbs));
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersionOf(group, version), resources };
}

function* kindsIn(
  { discovery, release }: ServerContext,
  group: string,
  version: string,
): Generator<readonly [Omit<ServedKind, "crd">, readonly string[]]> {
  for (const kind of builtInKinds(release).values()) {
    if (kind.group === group && kind.version === version) yield [kind, BUILT_IN_VERBS];
  }
  for (const { facts } of discovery.all()) {
    const isServed = facts.versions.some(({ name, served }) => served && name === version);
    const kind = facts.group === group && facts.isEstablished && isServed ? facts.kinds.get(version) : undefined;
    if (kind !== undefined) yield [kind, facts.isTerminating ? READ_VERBS : CUSTOM_VERBS];
  }
}

function resourceAnswers(resource: Omit<ServedKind, "crd">, verbs: readonly string[]): readonly object[] {
  const { hasStatus, kind, namespaced, resource: name, shortNames, singular, storageVersionHash } = resource;
  const short = shortNames === undefined ? {} : { shortNames };
  const hash = storageVersionHash === "" ? {} : { storageVersionHash };
  const main = { name, singularName: singular, namespaced, kind, verbs, ...short, ...hash };
  const status = { name: `${name}/status`, singularName: "", namespaced, kind, verbs: STATUS_VERBS };
  return hasStatus ? [main, status] : [main];
}

/**
 * Stable versions first, then beta, then alpha, newer ones before older ones, all others last.
 *
 * https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
 */
function byVersionPriority(a: string, b: string): number {
  const [left, right] = [priorityOf(a), priorityOf(b)];
  for (const [at, value] of left.entries()) {
    const other = right[at] ?? 0;
    if (value !== other) return other - value;
  }
  return a < b ? -1 : 1;
}

function priorityOf(version: string): readonly number[] {
  const match = /^v(\d+)(?:(alpha|beta)(\d+))?$/.exec(version);
  if (match === null) return [0, 0, 0];
  const stability = { alpha: 1, beta: 2 }[match[2] ?? ""] ?? 3;
  return [stability, Number(match[1]), Number(match[3] ?? 0)];
}
