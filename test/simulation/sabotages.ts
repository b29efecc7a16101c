import { CONTROLLER_LEASE } from "../../src/api/migration.ts";
import { MIGRATING } from "../../src/freeze/rule.ts";
import { CRDS, MERGE_PATCH } from "../../src/kube/objects.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import type { ModelRequest } from "./model/answers.ts";
import type { ModelObject } from "./model/etcd.ts";
import { CRD_PREFIX, resourcePathOf } from "./model/kinds.ts";
import { crdNameOf } from "./world/kinds.ts";
import type { TextAnswer } from "./world/network.ts";
import type { Sabotage, World } from "./world/world.ts";

// That the simulation finds each of these shows what it is able to see. No source is changed.

/** The address of the first API server, where each can be reached by its own. */
function firstOf(server: string): string {
  return server.replace(/10\.0\.0\.\d/, "10.0.0.1");
}

type Json = Record<string, unknown> & { metadata?: Record<string, unknown> };

function isProof({ method, path, query }: ModelRequest): boolean {
  return method === "PATCH" && path.startsWith(CRDS) && query.has("dryRun");
}

/** A write of an object that is migrated. */
function isWrite({ plan }: World, { method, path, query }: ModelRequest): boolean {
  const resource = resourcePathOf(path)?.resource;
  return method === "PATCH" && !query.has("dryRun") && plan.kinds.some(({ plural }) => plural === resource);
}

function done(body: object): TextAnswer {
  return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

/** An answer with another body. */
function edited(answer: TextAnswer, edit: (body: Json) => Json): TextAnswer {
  return answer.status === 200 ? { ...answer, body: JSON.stringify(edit(JSON.parse(answer.body) as Json)) } : answer;
}

/** A Lease that nobody seems to hold. */
function freed(answer: TextAnswer): TextAnswer {
  return edited(answer, ({ spec, ...lease }) => ({ ...lease, spec: { ...(spec as object), holderIdentity: "" } }));
}

function ofFirstGeneration(text: string): string {
  return text.replaceAll(/"generation":\d+/g, '"generation":1');
}

/** The object of a request as etcd has it, as an API server shows it. */
function shown({ cluster, plan }: World, { path }: ModelRequest): object {
  const { group = "", name = "", resource = "", version = "" } = resourcePathOf(path) ?? {};
  const entry = cluster.etcd
    .range("/registry/")
    .find(({ key }) => key.endsWith(`/${name}`) && key.includes(`/${resource}/`));
  const apiVersion = group === "" ? version : `${group}/${version}`;
  const { metadata, ...object } = (entry?.object ?? { kind: plan.kinds[0]?.plural, metadata: { name } }) as ModelObject;
  return { ...object, apiVersion, metadata: { ...metadata, resourceVersion: `${(entry?.modRevision ?? 1) + 1}` } };
}

export const SABOTAGES: readonly Sabotage[] = [
  {
    name: "the prune has no precondition",
    aim: "there and back while the prune is on its way",
    seeds: 20,
    edge: () => ({
      request(request) {
        const isPrune = request.method === "PATCH" && request.path.startsWith(CRDS) && request.path.endsWith("/status");
        if (!isPrune || request.query.has("dryRun")) return request;
        const body = JSON.parse(request.body) as Json;
        delete body.metadata?.["resourceVersion"];
        return { ...request, body: JSON.stringify(body) };
      },
    }),
  },
  {
    name: "the settle wait is skipped",
    aim: "writes of the old version are under way, and the clock of an API server is wrong",
    seeds: 40,
    settings: (settings) => ({ ...settings, settleMs: 0 }),
  },
  {
    name: "a write that was refused counts as done",
    aim: "objects are denied while they are written",
    seeds: 10,
    edge: (world) => ({
      answer: (request, answer) =>
        isWrite(world, request) && answer.status >= 400 ? done(shown(world, request)) : answer,
    }),
  },
  {
    name: "a rewrite takes managedFields away",
    aim: "another run begins",
    seeds: 5,
    edge: (world) => ({
      request(request) {
        if (!isWrite(world, request)) return request;
        const { metadata } = JSON.parse(request.body) as Json;
        const body = JSON.stringify({ metadata: { ...metadata, managedFields: [{}] } });
        const query = new URLSearchParams(request.query);
        query.delete("force");
        return { ...request, query, headers: { ...request.headers, "content-type": MERGE_PATCH }, body };
      },
    }),
  },
  {
    name: "the first API server proves the freeze for the others",
    aim: "the guard is in force late, and the network may fail",
    seeds: 60,
    edge: () => ({ server: (request, server) => (isProof(request) ? firstOf(server) : server) }),
  },
  {
    name: "the first API server says for the others that they have converged",
    aim: "an API server is behind the change for longer than late writes are waited for",
    seeds: 40,
    edge: () => ({
      server(request, server) {
        const { method, path } = request;
        const isAsked = path.startsWith("/apis/sim.example.com/") || path.startsWith(CRDS);
        return method === "GET" && isAsked ? firstOf(server) : server;
      },
    }),
  },
  {
    name: "one API server is all that there are",
    aim: "an API server hangs from before the change until after a run",
    seeds: 40,
    edge: () => ({
      answer(request, answer) {
        const { path, query } = request;
        const isIdentity = query.get("labelSelector")?.startsWith("apiserver.kubernetes.io/identity") === true;
        if (isIdentity) return edited(answer, ({ items, ...list }) => ({ ...list, items: (items as []).slice(0, 1) }));
        if (!path.includes("/endpointslices")) return answer;
        return edited(answer, ({ items, ...list }) => ({
          ...list,
          items: (items as { endpoints: [] }[]).map((slice) => ({ ...slice, endpoints: slice.endpoints.slice(0, 1) })),
        }));
      },
    }),
  },
  {
    name: "an object is gone whose write a webhook refused with 404",
    aim: "objects are denied while they are written",
    seeds: 80,
    edge(world) {
      const gone = new Set<string>();
      return {
        answer(request, answer) {
          const { group = "", name = "", resource = "" } = resourcePathOf(request.path) ?? {};
          const asked = /^metadata\.name=(.+)$/.exec(request.query.get("fieldSelector") ?? "")?.[1] ?? "";
          if (gone.has(`${resource}/${asked}`)) return edited(answer, (list) => ({ ...list, items: [] }));
          if (!isWrite(world, request) || answer.status !== 404 || !answer.body.includes("admission webhook"))
            return answer;
          gone.add(`${resource}/${name}`);
          const message = `${resource}.${group} "${name}" not found`;
          const status = { reason: "NotFound", details: { name, group, kind: resource }, code: 404, message };
          const body = { kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure", ...status };
          return { ...answer, body: JSON.stringify(body) };
        },
      };
    },
  },
  {
    name: "the generation of a CRD never changes",
    aim: "there and back",
    seeds: 20,
    edge: () => ({
      answer: ({ path }, answer) =>
        path.startsWith(CRDS) ? { ...answer, body: ofFirstGeneration(answer.body) } : answer,
      event: ({ path }, line) => (path.startsWith(CRDS) ? ofFirstGeneration(line) : line),
    }),
  },
  {
    name: "a checkpoint holds for any epoch",
    aim: "a run crashes or is told to end, and another one goes on",
    seeds: 150,
    edge: (world) => ({
      answer({ path }, answer) {
        const [name] = world.plan.kinds.map(crdNameOf);
        const crd = world.cluster.etcd.get(`${CRD_PREFIX}${name}`)?.object.metadata;
        if (!path.includes(`/leases/${leaseName("")}`) || crd === undefined) return answer;
        const epoch = `\\"epoch\\":\\"${crd.uid}/${crd.generation}\\"`;
        return { ...answer, body: answer.body.replace(/\\"epoch\\":\\"[^"]*"/, epoch) };
      },
    }),
  },
  {
    name: "a freeze is not lifted",
    aim: "another run begins",
    seeds: 5,
    edge: (world) => ({
      request(request) {
        const isUnfreeze = request.path.startsWith(CRDS) && request.body.includes(`"${MIGRATING}":null`);
        if (request.method !== "PATCH" || !isUnfreeze) return request;
        const { metadata, ...crd } = shown(world, request) as ModelObject;
        return done({ ...crd, metadata: { ...metadata, annotations: {} } });
      },
    }),
  },
  {
    name: "the Lease of a run looks free",
    aim: "another run begins",
    seeds: 10,
    edge: () => ({
      answer: ({ method, path }, answer) =>
        method === "GET" && path.includes(`/leases/${leaseName("")}`) ? freed(answer) : answer,
    }),
  },
  {
    name: "the Lease of the leader looks free",
    aim: "the leader ends, or stands still",
    seeds: 10,
    edge: () => ({
      answer: ({ method, path }, answer) =>
        method === "GET" && path.endsWith(`/leases/${CONTROLLER_LEASE}`) ? freed(answer) : answer,
    }),
  },
];

/** @throws {Error} where there is none of that name */
export function sabotageNamed(name: string): Sabotage {
  const found = SABOTAGES.find((one) => one.name === name);
  if (found === undefined)
    throw new Error(`there is no sabotage "${name}"; there are:\n${SABOTAGES.map((one) => one.name).join("\n")}`);
  return found;
}
