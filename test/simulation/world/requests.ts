import { CONTROLLER_LEASE } from "../../../src/api/migration.ts";
import { MIGRATING, OWNER } from "../../../src/freeze/rule.ts";
import { CRDS } from "../../../src/kube/objects.ts";
import { CHECKPOINT, leaseName } from "../../../src/migrator/run-lease.ts";
import type { ModelRequest } from "../model/answers.ts";
import { groupOf, resourcePathOf } from "../model/kinds.ts";

/** What a request of a program is for, as far as something may be aimed at it. */
export type RequestKind =
  /** Takes the Lease of a run, whether it is created or taken over. */
  | "takeLease"
  | "checkpoint"
  | "freeze"
  | "unfreeze"
  /** A dry-run of a change of the CRD. */
  | "proof"
  | "watchCrd"
  | "readCrd"
  /** What the API server shows of a version of the group. */
  | "discovery"
  /** Lists the identity Leases: with that each question begins that every API server is asked, nine times while late writes are waited for. */
  | "ask"
  /** A page of the objects that begins at the first one. */
  | "firstPage"
  /** A page at a continue token. */
  | "nextPage"
  /** A no-op write of an object. */
  | "write"
  | "prune"
  /** Writes the policy that guards a CRD, or its binding. */
  | "putGuard"
  | "removeGuard"
  /** Takes or renews the Lease of the leader. */
  | "lead"
  /** Puts the leader's name on a migration. */
  | "claim"
  /** Says that a migration has ended well. */
  | "succeed"
  /** Creates a migration. */
  | "newMigration"
  /** Writes a StorageState. */
  | "state";

const GUARDS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
const MIGRATION_API = "/apis/migration.k8s.io/v1alpha1/";
const LEADER_LEASE = `/leases/${CONTROLLER_LEASE}`;
const RUN_LEASE = leaseName("");

/** A resource whose objects users have. */
interface UserResource {
  /** Empty for the core group. */
  readonly group: string;
  /** The plural. */
  readonly resource: string;
}

/** @param resources that users have objects of. @returns `undefined` for anything else */
function requestKindOf(request: ModelRequest, resources: readonly UserResource[]): RequestKind | undefined {
  const { method, path } = request;
  if (path.startsWith(CRDS)) return ofCrd(request);
  if (path.startsWith(GUARDS)) return method === "GET" ? undefined : method === "DELETE" ? "removeGuard" : "putGuard";
  if (path.startsWith(MIGRATION_API)) return ofMigrations(request);
  if (path.includes("/leases")) return ofLease(request);
  return ofObjects(request, resources);
}

function ofCrd({ body, method, path, query }: ModelRequest): RequestKind | undefined {
  if (method === "GET") return query.has("watch") ? "watchCrd" : "readCrd";
  if (method !== "PATCH") return undefined;
  if (query.has("dryRun")) return "proof";
  if (path.endsWith("/status")) return "prune";
  const { annotations } = (JSON.parse(body) as { metadata?: { annotations?: Record<string, unknown> } }).metadata ?? {};
  const migrating = annotations?.[MIGRATING];
  if (migrating === undefined) return undefined;
  return migrating === null ? "unfreeze" : "freeze";
}

function ofMigrations({ body, method, path }: ModelRequest): RequestKind | undefined {
  if (method !== "POST" && method !== "PATCH") return undefined;
  if (path.startsWith("storagestates", MIGRATION_API.length)) return "state";
  if (method === "POST") return "newMigration";
  if (body.includes('"type":"Succeeded","status":"True"')) return "succeed";
  return body.includes(OWNER) ? "claim" : undefined;
}

function ofLease({ body, method, path, query }: ModelRequest): RequestKind | undefined {
  if (method === "GET") return query.has("labelSelector") ? "ask" : undefined;
  if (method === "PATCH" && path.endsWith(LEADER_LEASE)) return "lead";
  if (method === "POST") return body.includes(`"${RUN_LEASE}`) ? "takeLease" : undefined;
  if (method !== "PATCH" || !path.includes(`/leases/${RUN_LEASE}`)) return undefined;
  const { metadata, spec } = JSON.parse(body) as {
    metadata?: { annotations?: Record<string, string> };
    spec?: { holderIdentity?: string | null };
  };
  if (typeof spec?.holderIdentity === "string") return "takeLease";
  const checkpoint = metadata?.annotations?.[CHECKPOINT] ?? "";
  return checkpoint === "" ? undefined : "checkpoint";
}

function ofObjects({ method, path, query }: ModelRequest, resources: readonly UserResource[]): RequestKind | undefined {
  const asked = resourcePathOf(path);
  if (asked === undefined) return method === "GET" && isDiscovery(path, resources) ? "discovery" : undefined;
  if (!resources.some(({ group, resource }) => group === asked.group && resource === asked.resource)) return undefined;
  if (method === "PATCH") return query.has("dryRun") ? undefined : "write";
  if (method !== "GET" || query.has("fieldSelector")) return undefined;
  return query.has("continue") ? "nextPage" : "firstPage";
}

/** `/apis/GROUP/VERSION`, or `/api/VERSION` for the core group. */
function isDiscovery(path: string, resources: readonly UserResource[]): boolean {
  const group = groupOf(path);
  const parts = path.split("/").length;
  return resources.some((one) => one.group === group && parts === (group === "" ? 3 : 4));
}

/** A moment of a run: when ksvm sends its nth request of a kind, counted over all of its processes. */
export interface RequestMoment {
  readonly request: RequestKind;
  /** From 1. */
  readonly nth: number;
  /** So many milliseconds after that. @default at once, before the request arrives */
  readonly afterMs?: number;
  /** So many milliseconds the request is on its way. @default as any other */
  readonly holdMs?: number;
}

/** Has things happen when ksvm sends a request, and not at some time: then they meet what they are to disturb. */
export class RequestTriggers {
  readonly #resources: readonly UserResource[];
  readonly #in: (ms: number, run: () => void) => void;
  readonly #counts = new Map<RequestKind, number>();
  #armed: (RequestMoment & { readonly run: () => void })[] = [];

  /** @param later calls something after so many milliseconds */
  constructor(resources: readonly UserResource[], later: (ms: number, run: () => void) => void) {
    this.#resources = resources;
    this.#in = later;
  }

  /** Has `run` called at that moment, once. */
  when(moment: RequestMoment, run: () => void): void {
    this.#armed.push({ ...moment, run });
  }

  /** Nothing that has not happened so far happens any more. */
  disarm(): void {
    this.#armed = [];
  }

  /** Told of each request, when it is sent. @returns how long it is held on its way, in milliseconds */
  sent(request: ModelRequest): number {
    if (this.#armed.length === 0) return 0;
    const kind = requestKindOf(request, this.#resources);
    if (kind === undefined) return 0;
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    const due = this.#armed.filter((armed) => armed.request === kind && armed.nth === count);
    if (due.length === 0) return 0;
    this.#armed = this.#armed.filter((armed) => !due.includes(armed));
    for (const { afterMs = 0, run } of due) this.#in(afterMs, run);
    return Math.max(...due.map(({ holdMs = 0 }) => holdMs));
  }
}
