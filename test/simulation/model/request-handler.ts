import { apiVersion } from "../../../src/kube/objects.ts";
import {
  errorAnswer,
  forbidden,
  jsonAnswer,
  type ModelAnswer,
  type ModelRequest,
  notFound,
  PathNotServed,
  Refusal,
  textAnswer,
  type WatchSink,
} from "./answers.ts";
import { encryptionMetricsOf, type ServerContext } from "./context.ts";
import type { ModelObject } from "./etcd.ts";
import {
  builtInKinds,
  groupOf,
  isBuiltInGroup,
  kindKey,
  type Release,
  type ResourcePath,
  resourcePathOf,
  type ServedKind,
} from "./kinds.ts";
import { assertWatchable, list, type ListRequest } from "./reads.ts";
import { decode, partialTextOf, textOf } from "./stored-objects.ts";
import {
  create,
  isMetadataAsked,
  keyOf,
  named,
  parsedBody,
  patchOf,
  preconditionsOf,
  remove,
  update,
  type Write,
  writeOptionsOf,
  type Written,
} from "./writes.ts";

/** What requests need of their API server, beside what its parts share. */
export interface RequestContext extends ServerContext {
  readonly denied: readonly DenyRule[];
  readonly startedAt: number;
  readonly name: string;
  readonly reloads: number;
  /** Opens a watch. @returns what ends it from the side of the client */
  open(asked: ListRequest, sink: WatchSink): () => void;
  /** Called after each write. */
  wrote(kind: ServedKind): void;
}

/** Answers a request. It rejects only where the model itself is at fault. */
export async function answerRequest(server: RequestContext, request: ModelRequest): Promise<ModelAnswer> {
  try {
    const path = resourcePathOf(request.path);
    return path === undefined ? await answerPath(server, request) : await answerResource(server, request, path);
  } catch (error) {
    const isOfBuiltIn = error instanceof PathNotServed && isBuiltInGroup(server.release, groupOf(request.path));
    return errorAnswer(isOfBuiltIn ? resourceNotThere() : error, server.clock.now());
  }
}

/** What is not there in a group of the API server's own is said by a Status, and any other path in plain text. */
function resourceNotThere(): Refusal {
  const message = "the server could not find the requested resource";
  return new Refusal({ code: 404, reason: "NotFound", details: {}, message });
}

async function answerPath(server: RequestContext, { method, path, user }: ModelRequest): Promise<ModelAnswer> {
  assertPathAllowed(server.denied, user, path);
  await server.io.hold("bound");
  if (method !== "GET") throw new PathNotServed();
  if (path === "/version") return json(server, 200, versionText(server.release));
  if (path === "/metrics") return textAnswer(200, metricsOf(server), { now: server.clock.now(), version: "0.0.4" });
  return json(server, 200, discoveryText(server, path));
}

async function answerResource(server: RequestContext, request: ModelRequest, path: ResourcePath): Promise<ModelAnswer> {
  const { method, query, user } = request;
  const isWatch = isTrue(query.get("watch"));
  // Every user may ask what the user may do.
  if (path.resource === "selfsubjectaccessreviews") return reviewAccess(server, request);
  assertAllowed(server.denied, { ...path, user, verb: verbOf(method, path, isWatch) });
  const kind = kindAt(server, path);
  await server.io.hold("bound");
  assertSubresource(kind, path);
  if (method !== "GET") {
    const [status, object] = await write(server, request, { kind, path });
    server.wrote(kind);
    return answerObject(server, request, { status, object });
  }
  if (path.name !== undefined) {
    return answerObject(server, request, { status: 200, object: read(server, query, { kind, path }) });
  }
  const asked = { kind, namespace: path.namespace, query, isMetadata: isMetadataAsked(request) };
  if (!isWatch) return json(server, 200, list(server, asked));
  assertWatchable(server, asked);
  return jsonAnswer(200, (sink) => server.open(asked, sink), server.clock.now());
}

/** What a path is served by at this moment. @throws {PathNotServed} */
function kindAt({ handlers, release }: RequestContext, path: ResourcePath): ServedKind {
  const kind = builtInKinds(release).get(kindKey(path)) ?? customKindAt(handlers, path);
  const isInNamespace = path.namespace !== undefined;
  const isOverAll = path.name === undefined && !isInNamespace;
  const isServed = kind !== undefined && (kind.namespaced ? isInNamespace || isOverAll : !isInNamespace);
  if (!isServed) throw new PathNotServed();
  return kind;
}

function customKindAt(
  handlers: RequestContext["handlers"],
  { group, resource, version }: ResourcePath,
): ServedKind | undefined {
  const crd = handlers.get(`${resource}.${group}`);
  if (crd === undefined || !crd.facts.isEstablished) return undefined;
  const isServed = crd.facts.versions.some(({ name, served }) => served && name === version);
  const kind = isServed ? crd.facts.kinds.get(version) : undefined;
  return kind === undefined ? undefined : { ...kind, crd };
}

interface Target {
  readonly kind: ServedKind;
  readonly path: ResourcePath;
}

function read(server: RequestContext, query: URLSearchParams, { kind, path }: Target): ModelObject {
  if (query.has("resourceVersion")) throw new Error("The model knows no GET that the watch cache answers");
  const name = named(path.name);
  const entry = server.etcd.get(keyOf({ kind, name, namespace: path.namespace }));
  if (entry === undefined) throw notFound(kind, name);
  return decode(server, kind, entry);
}

async function write(
  server: RequestContext,
  request: ModelRequest,
  { kind, path }: Target,
): Promise<readonly [number, object]> {
  const { namespace, subresource } = path;
  const options = { kind, namespace, subresource, ...writeOptionsOf(request) };
  if (request.method === "POST" && path.name === undefined) {
    return written(await create(server, options, parsedBody(request.body)));
  }
  const target: Write = { ...options, name: named(path.name) };
  switch (request.method) {
    case "PATCH":
      return written(await update(server, target, patchOf(server, target, request)));
    case "DELETE":
      return [200, await remove(server, target, preconditionsOf(request))];
    default:
      throw new Error(`The model knows no ${request.method}`);
  }
}

function written({ object, wasCreated }: Written): readonly [number, ModelObject] {
  return [wasCreated ? 201 : 200, object];
}

function reviewAccess(server: RequestContext, { body, user }: ModelRequest): ModelAnswer {
  const review = parsedBody(body) as {
    spec?: { resourceAttributes?: Omit<AccessRequest, "user">; nonResourceAttributes?: { path: string } };
  };
  const { nonResourceAttributes: path, resourceAttributes } = review.spec ?? {};
  const attributes = resourceAttributes ?? { verb: "", group: "", resource: "" };
  const allowed = path
    ? isPathAllowed(server.denied, user, path.path)
    : isAllowed(server.denied, { ...attributes, user });
  return json(server, 201, JSON.stringify({ ...review, metadata: {}, status: { allowed } }));
}

function answerObject(
  server: RequestContext,
  request: ModelRequest,
  { object, status }: { readonly status: number; readonly object: object },
): ModelAnswer {
  const whole = object as ModelObject;
  if (whole.metadata?.name === undefined) return json(server, status, JSON.stringify(object));
  return json(server, status, isMetadataAsked(request) ? partialTextOf(whole) : textOf(whole));
}

function json({ clock }: RequestContext, status: number, body: string): ModelAnswer {
  return jsonAnswer(status, body, clock.now());
}

function assertSubresource(kind: ServedKind, { name = "", subresource }: ResourcePath): void {
  if (subresource === undefined || (subresource === "status" && kind.hasStatus)) return;
  throw kind.crd === undefined ? new PathNotServed() : notFound(kind, name);
}

function isTrue(value: string | null): boolean {
  return value === "true" || value === "1";
}

function metricsOf(server: RequestContext): string {
  const name = "process_start_time_seconds";
  const help = "Start time of the process since unix epoch in seconds.";
  const seconds = (server.startedAt / 1_000).toExponential().replace("e+9", "e+09");
  return `${encryptionMetricsOf(server)}# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${seconds}\n`;
}

const versions = new WeakMap<Release, string>();

/** What `/version` answers: one request in six asks for it. */
function versionText(release: Release): string {
  let text = versions.get(release);
  if (text === undefined) {
    const { gitVersion } = release;
    const [, major, minor] = /^v(\d+)\.(\d+)/.exec(gitVersion) ?? [];
    versions.set(release, (text = JSON.stringify({ major, minor, gitVersion, platform: "linux/amd64" })));
  }
  return text;
}

/** What a user asks to do. */
interface AccessRequest {
  readonly user: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string | undefined;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
}

/** What users may not do: everything that matches all fields that are named. What no rule matches is allowed. */
export interface DenyRule {
  readonly user?: string;
  /** How the names of the users begin that it is about. */
  readonly userPrefix?: string;
  readonly verb?: string;
  readonly group?: string;
  readonly resource?: string;
  readonly subresource?: string;
  readonly namespace?: string;
  /** A path that names no resource, such as `/metrics`. */
  readonly path?: string;
}

/** @throws {Refusal} 403 in the words of the authorizer */
function assertAllowed(rules: readonly DenyRule[], request: AccessRequest): void {
  if (rules.length === 0 || isAllowed(rules, request)) return;
  const { group, name = "", namespace, resource, subresource, user, verb } = request;
  const what = JSON.stringify(subresource === undefined ? resource : `${resource}/${subresource}`);
  const where = namespace === undefined ? "at the cluster scope" : `in the namespace "${namespace}"`;
  const why = `User ${JSON.stringify(user)} cannot ${verb} resource ${what} in API group "${group}" ${where}`;
  throw forbidden({ group, resource }, name, why);
}

/** @throws {Refusal} 403 in the words of the authorizer */
function assertPathAllowed(rules: readonly DenyRule[], user: string, path: string): void {
  if (isPathAllowed(rules, user, path)) return;
  const message = `forbidden: User ${JSON.stringify(user)} cannot get path ${JSON.stringify(path)}`;
  throw new Refusal({ code: 403, reason: "Forbidden", details: {}, message });
}

/** Whether no rule denies that a user gets a path that names no resource. */
function isPathAllowed(rules: readonly DenyRule[], user: string, path: string): boolean {
  return !rules.some(
    (rule) => rule.path === path && (rule.user ?? user) === user && user.startsWith(rule.userPrefix ?? ""),
  );
}

/** Whether no rule denies it. */
function isAllowed(rules: readonly DenyRule[], request: AccessRequest): boolean {
  return !rules.some(
    ({ group, namespace, path, resource, subresource, user, userPrefix = "", verb }) =>
      path === undefined &&
      (user ?? request.user) === request.user &&
      request.user.startsWith(userPrefix) &&
      (verb ?? request.verb) === request.verb &&
      (group ?? request.group) === request.group &&
      (resource ?? request.resource) === request.resource &&
      (subresource ?? request.subresource) === request.subresource &&
      (namespace ?? request.namespace) === request.namespace,
  );
}

const VERBS: Readonly<Record<string, string>> = { POST: "create", PUT: "update", PATCH: "patch", DELETE: "delete" };

/** The verb of a request, as RBAC has it. */
function verbOf(method: string, { name }: ResourcePath, isWatch: boolean): string {
  if (method !== "GET") return VERBS[method] ?? method.toLowerCase();
  if (name !== undefined) return "get";
  return isWatch ? "watch" : "list";
}

const READ_VERBS = ["delete", "deletecollection", "get", "list", "watch"];
const BUILT_IN_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const STATUS_VERBS = ["get", "patch", "update"];

/** Groups that have no object of their own here, and are asked for. */
const AUTHORIZATION = { group: "authorization.k8s.io", version: "v1" };

/** As {@link discoveryAnswer}, as JSON text. @throws {PathNotServed} */
function discoveryText(context: ServerContext, path: string): string {
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
  return { kind: "APIResourceList", apiVersion: "v1", groupVersion: apiVersion({ group, version }), resources };
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
