import { holderOf, type Lease } from "../../../src/api/lease.ts";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../../src/api/names.ts";
import type { ModelRequest } from "../model/types.ts";
import { ControllerProgram } from "../programs/controller-program.ts";
import { collectionOf } from "../world/kinds.ts";
import { isByKsvm, type World } from "../world/world.ts";
import type { Check } from "./check.ts";

const LEASE = `/registry/leases/${SYSTEM_NAMESPACE}/${CONTROLLER_LEASE}`;
/** What a leader alone writes, beside built-in resources: custom resources, CRDs, migrations and StorageStates. */
const PATHS = /^\/apis\/(sim\.example\.com|apiextensions\.k8s\.io|migration\.k8s\.io)\//;
/** What guards a freeze: a leader that ends deletes its own. All replicas keep the policy that warns of an unfreeze. */
const POLICIES = /^\/apis\/admissionregistration\.k8s\.io\/[^/]+\/validatingadmissionpolic/;
const OF_FREEZES = /\bksvm-freeze\./;
/** So long after a user edited the Lease, in milliseconds, two replicas may take themselves for the leader: the renewal before that holds. */
const EDITED_MS = 10_000;

/**
 * Fencing (DESIGN.md, "Two writers"): a replica sends no write of a leader once another one, or none, holds the Lease, unless a user edited the
 * Lease a moment ago, or both clocks of the replica miss a time. It may lift its own freeze then: that is how a leader ends.
 */
export class LeaderFenceCheck implements Check {
  readonly name = "leader fence";
  readonly #world: World;
  /** Of the built-in resources. */
  readonly #collections: readonly string[];
  #editedAt = Number.NEGATIVE_INFINITY;

  constructor(world: World) {
    this.#world = world;
    const { cluster, plan, schedule } = world;
    const builtIns = plan.kinds.filter(({ isBuiltIn }) => isBuiltIn === true);
    this.#collections = builtIns.flatMap((kind) => kind.versions.map((version) => collectionOf(kind, version)));
    const edited = (): void => {
      this.#editedAt = schedule.now;
    };
    cluster.etcd.onRestore(edited);
    cluster.etcd.onRevision(({ key }) => {
      if (key === LEASE && !isByKsvm()) edited();
    });
    cluster.onRequest((request) => this.#sent(request));
  }

  #sent(request: ModelRequest): void {
    if (request.method === "GET" || !this.#isOfLeader(request) || isHarmless(request)) return;
    const { cluster, programs, schedule } = this.#world;
    const sender = programs.find((program) => program?.process.name === request.user);
    if (!(sender instanceof ControllerProgram) || sender.process.missesTime) return;
    const lease = cluster.etcd.get(LEASE)?.object as unknown as Lease | undefined;
    const holder = holderOf(lease);
    if (holder === sender.identity || schedule.now - this.#editedAt < EDITED_MS) return;
    this.#world.violate(
      `leader fence: ${request.user} sends ${request.method} ${request.path} as the leader, and "${holder}" holds the Lease`,
    );
  }

  #isOfLeader({ body, method, path }: ModelRequest): boolean {
    if (POLICIES.test(path)) return method !== "DELETE" && OF_FREEZES.test(method === "POST" ? body : path);
    return PATHS.test(path) || this.#collections.some((collection) => path.startsWith(`${collection}/`));
  }
}

/** A dry-run, or a freeze that is lifted; of one that a user has lifted, its owner is taken off. */
function isHarmless({ body, method, query }: ModelRequest): boolean {
  if (query.has("dryRun")) return true;
  return method === "PATCH" && [MIGRATING_ANNOTATION, OWNER_ANNOTATION].some((name) => body.includes(`"${name}":null`));
}
