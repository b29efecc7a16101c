import {
  type AccessRequest,
  assertAllowed,
  assertPathAllowed,
  type DenyRule,
  isAllowed,
  isPathAllowed,
  verbOf,
} from "./access-table.ts";
import { errorAnswer, jsonAnswer, methodNotAllowed, notFound, PathNotServed, Refusal, textAnswer } from "./answers.ts";
import { builtInKinds, isBuiltInGroup } from "./built-in-kinds.ts";
import { cachedEntry } from "./cached-reads.ts";
import { create } from "./creates.ts";
import { remove } from "./deletes.ts";
import { discoveryText } from "./discovery-answers.ts";
import { encryptionMetricsOf } from "./encryption-metrics.ts";
import { list, type ListRequest } from "./lists.ts";
import type { ModelObject } from "./model-object.ts";
import { groupOf, type ResourcePath, resourcePathOf } from "./paths.ts";
import { isMetadataAsked, patchOf, preconditionsOf, replacementOf, writeOptionsOf } from "./requests.ts";
import type { Release } from "./resource-table.ts";
import { kindKey, type ServedKind } from "./served-kinds.ts";
import type { ServerContext } from "./server-context.ts";
import { decode, decodeNow, partialTextOf, textOf } from "./stored-objects.ts";
import type { ModelAnswer, ModelRequest, WatchSink } from "./types.ts";
import { update } from "./updates.ts";
import { assertWatchable } from "./watches.ts";
import { keyOf, named, parsedBody, type Write, type Written } from "./write-request.ts";

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
    return answerObject(server, request, { status: 200, object: await read(server, query, { kind, path }) });
  }
  const asked = { kind, namespace: path.namespace, query, isMetadata: isMetadataAsked(request) };
  if (!isWatch) return json(server, 200, await list(server, asked));
  await assertWatchable(server, asked);
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

async function read(server: RequestContext, query: URLSearchParams, { kind, path }: Target): Promise<ModelObject> {
  const name = named(path.name);
  const key = keyOf({ kind, name, namespace: path.namespace });
  // With a resourceVersion it may be an older state, that of the watch cache.
  const isCached = query.has("resourceVersion");
  const entry = isCached ? await cachedEntry(server, query, { kind, key }) : server.etcd.get(key);
  if (entry === undefined) throw notFound(kind, name);
  return decodeNow(server, kind, entry) ?? (await decode(server, kind, entry, isCached));
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
    case "PUT":
      return written(
        await update(server, target, { change: replacementOf(server, target, request), mayCreate: false }),
      );
    case "DELETE":
      return [200, await remove(server, target, preconditionsOf(request))];
    default:
      throw methodNotAllowed(kind, request.method.toLowerCase());
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
