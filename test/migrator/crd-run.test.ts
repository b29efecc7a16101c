import tap, { type Test } from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { type FreezeOwner, formatOwner } from "../../src/api/owner.ts";
import { freezePolicyOf } from "../../src/freeze/freeze-policy.ts";
import { policyGuardOf } from "../../src/freeze/guard-install.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { CRDS, LEASES, POLICIES, POLICY_BINDINGS, type Resource } from "../../src/kube/resources.ts";
import type { Fence } from "../../src/kube/transport-options.ts";
import { RunLease } from "../../src/lease/run-lease.ts";
import { CrdRun } from "../../src/migrator/crd-run.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { LeaseServer } from "../lease/lease-server.ts";
import { ManualClock } from "../manual-clock.ts";

const CRD = "widgets.example.com";
const GUARD = policyGuardOf(CRD);
const { signal } = new AbortController();

interface Metadata {
  readonly name: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly annotations?: Readonly<Record<string, string | null>>;
}
interface Stored {
  readonly metadata: Metadata;
}

/**
 * A stand-in for an API server that keeps objects: on a real one the Lease of a run can be taken over, but the time until
 * the run finds out cannot be chosen. It takes writes as a real one does, by uid and resourceVersion.
 */
class ObjectServer {
  readonly leases = new LeaseServer();
  readonly #objects = new Map<string, Stored>();
  #revision = 1_000;

  get client(): ApiClient {
    return this.#clientWith(async () => undefined);
  }

  find({ resource }: Resource, name: string): Stored | undefined {
    return this.#objects.get(`${resource}/${name}`);
  }

  /** Writes an object whatever is there. Annotations that are null are taken off. */
  put({ resource }: Resource, { metadata, ...rest }: Stored): Stored {
    const found = this.#objects.get(`${resource}/${metadata.name}`);
    const annotations = Object.entries({ ...found?.metadata.annotations, ...metadata.annotations });
    const resourceVersion = String(this.#revision++);
    const kept = Object.fromEntries(annotations.filter(([, value]) => value !== null));
    const uid = found?.metadata.uid ?? `uid-${resourceVersion}`;
    const stored = { ...found, ...rest, metadata: { name: metadata.name, uid, resourceVersion, annotations: kept } };
    this.#objects.set(`${resource}/${metadata.name}`, stored);
    return stored;
  }

  #clientWith(fence: Fence): ApiClient {
    const { client: leases } = this.leases;
    const client = {
      transport: leases.transport,
      fencedBy: (by: Fence) => this.#clientWith(by),
      get: async (resource: Resource, { name }: Metadata) => this.#existing(resource, { name }),
      find: async (...args: Parameters<ApiClient["find"]>) =>
        args[0] === LEASES ? leases.find(...args) : this.find(args[0], args[1].name),
      create: async (...args: Parameters<ApiClient["create"]>) => {
        await fence();
        return args[0] === LEASES ? leases.create(...args) : this.put(args[0], args[1] as Stored);
      },
      patch: async (...args: Parameters<ApiClient["patch"]>) => {
        await fence();
        const [resource, { name }, { body }] = args;
        if (resource === LEASES) return leases.patch(...args);
        const { metadata, ...rest } = body as Stored;
        this.#existing(resource, { ...metadata, name });
        return this.put(resource, { ...rest, metadata: { ...metadata, name } });
      },
      delete: async (...args: Parameters<ApiClient["delete"]>) => {
        await fence();
        const [resource, { name }, options] = args;
        if (resource === LEASES) return leases.delete(...args);
        this.#existing(resource, { ...options?.preconditions, name });
        return this.#objects.delete(`${resource.resource}/${name}`);
      },
    };
    return client as unknown as ApiClient;
  }

  #existing(resource: Resource, { name, uid, resourceVersion }: Metadata): Stored {
    const found = this.find(resource, name);
    if (found === undefined) {
      throw new ApiError(`find ${name}`, 404, { answer: { kind: "Status", reason: "NotFound", details: { name } } });
    }
    const { metadata } = found;
    if (
      (uid ?? metadata.uid) !== metadata.uid ||
      (resourceVersion ?? metadata.resourceVersion) !== metadata.resourceVersion
    ) {
      throw new ApiError(`write ${name}`, 409, { answer: { kind: "Status", reason: "Conflict" } });
    }
    return found;
  }
}

/** Starts a run that is frozen when another takes its Lease; what that one does then is `next`. */
async function runUntilTakenOver(t: Test, next: (server: ObjectServer) => void) {
  const clock = new ManualClock();
  const server = new ObjectServer();
  server.put(CRDS, crdWith({}));
  const { client } = server;
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const events: MigrationEvent[] = [];
  const emit = (event: MigrationEvent): void => void events.push(event);
  const options = { client, clock, retrier, namespace: "kube-system", name: "ksvm-migrate.widgets", signal };
  const lease = await RunLease.acquire({ ...options, identity: "run-a" });
  const context = {
    arrivals: UNSEEN_ARRIVALS,
    client,
    clock,
    retrier,
    emit,
    signal,
    identity: "run-a",
    options: { leaseNamespace: "kube-system" },
    findApiServers: async () => {
      t.ok(server.find(CRDS, CRD)?.metadata.annotations?.[MIGRATING_ANNOTATION], "the CRD is frozen");
      t.ok(server.find(POLICIES, GUARD.name), "and guarded");
      server.leases.takeOver("run-b");
      next(server);
      // The run finds out that another holds its Lease.
      await clock.advance(20_000);
      return lease.confirm(signal);
    },
  } as unknown as RunContext;
  const cleanup = new Cleanup(context);
  const run = new CrdRun({
    context,
    lease,
    guarded: { crdName: CRD, guard: GUARD },
    cleanup,
    restarts: undefined,
    memory: {},
  });
  await t.rejects(
    cleanup.after(() => run.run()),
    { code: "OwnershipLost", message: /held by "run-b"/ },
  );
  await lease.release({ keepCheckpoint: true }, signal);
  t.equal(server.leases.lease?.spec?.holderIdentity, "run-b", "its Lease is left alone");
  return { events, server };
}

await tap.test(
  "CrdRun lifts its own freeze and policy although another run took its Lease over and died",
  async (t) => {
    // It dies before it sweeps what it found.
    const { events, server } = await runUntilTakenOver(t, () => undefined);
    t.same(server.find(CRDS, CRD)?.metadata.annotations, {}, "neither the freeze nor its owner stays");
    t.equal(server.find(POLICIES, GUARD.name), undefined);
    t.equal(server.find(POLICY_BINDINGS, GUARD.name), undefined);
    t.same(
      events.map(({ type }) => type),
      ["frozen", "unfrozen"],
      "without a warning",
    );
  },
);

await tap.test("CrdRun leaves the freeze and the policy of the run that took its Lease over", async (t) => {
  const owner: FreezeOwner = {
    lease: "kube-system/ksvm-migrate.widgets",
    identity: "run-b",
    since: "2026-01-01T00:00:00.000Z",
  };
  const annotations = { [OWNER_ANNOTATION]: formatOwner(owner) };
  const { events, server } = await runUntilTakenOver(t, (taken) => {
    const { policy, binding } = freezePolicyOf(CRD, { labels: {}, annotations });
    taken.put(POLICIES, policy);
    taken.put(POLICY_BINDINGS, binding);
    taken.put(CRDS, { metadata: { name: CRD, annotations: { ...annotations, [MIGRATING_ANNOTATION]: "true" } } });
  });
  t.match(server.find(CRDS, CRD)?.metadata.annotations, { ...annotations, [MIGRATING_ANNOTATION]: "true" });
  for (const resource of [POLICIES, POLICY_BINDINGS]) {
    t.match(server.find(resource, GUARD.name)?.metadata.annotations, annotations);
  }
  t.same(
    events.map(({ type }) => type),
    ["frozen"],
  );
});
