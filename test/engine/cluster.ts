import { randomBytes } from "node:crypto";
import type { Test } from "tap";
import { type Clock, systemClock } from "../../src/clock.ts";
import { policyName } from "../../src/freeze/freeze.ts";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import type { Client } from "../../src/kube/client.ts";
import { connect } from "../../src/kube/connect.ts";
import {
  BINDINGS,
  collectionPath,
  type Crd,
  CRDS,
  type KubeObject,
  LEASES,
  objectPath,
  POLICIES,
} from "../../src/kube/objects.ts";
import { migrateCrds } from "../../src/migrator/migrate-crd.ts";
import type { MigrateOptions, MigrationEvent, MigrationResult } from "../../src/migrator/types.ts";
import { type ControlPlane, startControlPlane } from "../control-plane/control-plane.ts";
import type { ControlPlaneOptions } from "../control-plane/options.ts";
import { attachShared } from "../control-plane/shared.ts";
import { type CrdShape, GROUP, type TestKind, versionsOf } from "../integration/crd-fixture.ts";

/** What tests call API servers with, unless they say otherwise. */
export const { signal } = new AbortController();

/** How a run of one CRD ended, and what it told. */
export interface Ran {
  readonly events: readonly MigrationEvent[];
  readonly result?: MigrationResult;
  readonly error?: Error & { readonly code?: string };
}

/** A real control plane with a client of this engine. Ends with the test. */
export class Cluster {
  readonly controlPlane: ControlPlane;
  readonly client: Client;

  private constructor(controlPlane: ControlPlane, client: Client) {
    this.controlPlane = controlPlane;
    this.client = client;
  }

  static async start(t: Pick<Test, "teardown">, own?: ControlPlaneOptions): Promise<Cluster> {
    const controlPlane = await (own === undefined ? attachShared() : startControlPlane(own));
    const cluster = await Cluster.connect(t, controlPlane);
    t.teardown(() => controlPlane.stop());
    return cluster;
  }

  static async connect(
    t: Pick<Test, "teardown">,
    controlPlane: ControlPlane,
    { clock = systemClock, user }: { readonly clock?: Clock; readonly user?: string } = {},
  ): Promise<Cluster> {
    const kubeconfig = controlPlane.kubeconfigFor(user);
    const { client, close } = await connect({ kubeconfig, variables: {} }, { clock, random: Math.random, signal });
    t.teardown(close);
    return new Cluster(controlPlane, client);
  }

  /** Runs one migration, with a settle time that fits a test in which nothing is under way when the storage version changes. */
  async migrate({ name }: Pick<TestKind, "name">, options: Partial<MigrateOptions> = {}): Promise<Ran> {
    const events: MigrationEvent[] = [];
    const [end] = await migrateCrds(this.client, [name], {
      identity: `test-${randomBytes(4).toString("hex")}`,
      settleMs: 50,
      signal,
      ...options,
      onEvent: (event, resource) => {
        events.push(event.type === "progress" ? structuredClone(event) : event);
        options.onEvent?.(event, resource);
      },
    });
    if (end === undefined) throw new Error("no end");
    return "error" in end ? { events, error: end.error as Error } : { events, result: end.result };
  }

  crd({ name }: Pick<TestKind, "name">): Promise<Crd> {
    return this.client.get<Crd>(`${CRDS}/${name}`, { signal });
  }

  /** Creates a CRD, and waits until its objects can be written in every served version. */
  async createCrd(kind: TestKind, shape: CrdShape): Promise<void> {
    const manifest = kind.manifest(shape);
    await this.client.create(CRDS, manifest, { signal });
    for (const { name, served } of manifest.spec.versions) if (served) await this.untilServed(kind, name);
    // It is served a moment before its conditions say so.
    const isEstablished = async (): Promise<boolean> =>
      (await this.crd(kind)).status?.conditions?.some(
        ({ status, type }) => type === "Established" && status === "True",
      ) === true;
    await eventually(isEstablished, `${kind.name} is established`);
  }

  async untilServed(kind: TestKind, version: string): Promise<void> {
    const path = collectionPath({ ...kind.resource(version), plural: kind.plural });
    const options = { query: { limit: 1 }, signal, timeoutMs: 10_000 };
    await eventually(
      () =>
        this.client.list(path, options).then(
          () => true,
          () => false,
        ),
      `${version} of ${kind.plural} is served`,
    );
  }

  /** Objects stored as v1alpha1 of a CRD whose storage version is v1 by now: the state that every migration starts from. */
  async createStale(kind: TestKind, count: number, shape: Partial<CrdShape> = {}): Promise<void> {
    await this.createCrd(kind, { ...shape, storage: "v1alpha1" });
    await this.createObjects(kind, kind.objects(count, "v1alpha1"), "v1alpha1");
    await this.setVersions(kind, { ...shape, storage: "v1" });
  }

  async createObjects(kind: TestKind, objects: readonly object[], version: string): Promise<void> {
    const queue = objects.values();
    const path = collectionPath({ ...kind.resource(version), plural: kind.plural }, "default");
    const worker = async (): Promise<void> => {
      for (const object of queue) await this.client.create(path, object, { signal });
    };
    await Promise.all(Array.from({ length: 16 }, worker));
  }

  /** Replaces `spec.versions`. */
  setVersions({ name }: Pick<TestKind, "name">, shape: CrdShape): Promise<Crd> {
    return this.client.patch<Crd>(`${CRDS}/${name}`, { spec: { versions: versionsOf(shape) } }, { signal });
  }

  /** The path of an object in the default namespace. */
  path(kind: TestKind, name: string, version = "v1"): string {
    return objectPath({ ...kind.resource(version), plural: kind.plural }, { name, namespace: "default" });
  }

  object(kind: TestKind, name: string, version = "v1"): Promise<KubeObject & { readonly spec?: object }> {
    return this.client.get(this.path(kind, name, version), { signal });
  }

  /** How many objects etcd holds in each version. */
  async storedAs({ plural }: Pick<TestKind, "plural">): Promise<Record<string, number>> {
    const counts = await this.controlPlane.stored.countByVersion(GROUP, plural);
    return Object.fromEntries(Object.entries(counts).map(([version, n]) => [version.slice(GROUP.length + 1), n]));
  }

  /** However a run ends, the CRD is not frozen and nobody guards it any more. */
  async assertUnfrozen(t: Test, kind: TestKind): Promise<void> {
    const { metadata } = await this.crd(kind);
    t.equal(metadata.annotations?.[MIGRATING], undefined, "no annotation is left");
    t.equal(metadata.annotations?.[OWNER], undefined, "no owner is left");
    for (const path of [POLICIES, BINDINGS]) {
      t.equal(await this.client.find(`${path}/${policyName(kind.name)}`, { signal }), undefined, "no policy is left");
    }
  }

  /** A run that left nothing to resume leaves nothing at all. */
  async assertNoTraces(t: Test, kind: TestKind): Promise<void> {
    await this.assertUnfrozen(t, kind);
    const lease = await this.client.find(`${LEASES}/kube-system/leases/ksvm-migrate.${kind.name}`, { signal });
    t.equal(lease, undefined, "no Lease is left");
  }
}

/** Generous: it is only used up where something is wrong, or the machine is busy with others. */
const WAIT_MS = 200_000;

/** Waits until `condition` holds. */
export async function eventually(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + WAIT_MS;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`Cannot see after ${WAIT_MS} ms that ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
