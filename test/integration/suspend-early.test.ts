import t, { type Test } from "tap";
import { stateOf, type StorageVersionMigration, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { hasFreezeAnnotation } from "../../src/api/owner.ts";
import { LEASES } from "../../src/kube/resources.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { NO_PULSE } from "../../src/pulse.ts";
import { setSuspend } from "../../src/suspend/set-suspend.ts";
import { clearSuspendMark, setSuspendMark } from "../../src/suspend/suspend-mark.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { createMigration, installSystem, readMigration, startController, untilState } from "./controller-fixture.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);
await installSystem(cluster);
const { api } = cluster;

/** Far beyond the seconds that a busy machine takes, and below every wait of a run that is interrupted here. */
const SOON_MS = 15_000;

interface Way {
  readonly suspend: (migration: StorageVersionMigration) => Promise<unknown>;
  readonly resume: () => Promise<unknown>;
}

const WAYS: Readonly<Record<string, Way>> = {
  "spec.suspend": {
    suspend: async (migration) =>
      setSuspend(api, { migration: await readMigration(cluster, migration), suspend: true }),
    resume: async () => undefined,
  },
  "ksvm suspend --all": {
    suspend: () => setSuspendMark(api, { namespace: SYSTEM_NAMESPACE, mark: { since: new Date().toISOString() } }),
    resume: () => clearSuspendMark(api, SYSTEM_NAMESPACE),
  },
};

/** A Lease of an API server that no connection ends at, which was last renewed so many milliseconds ago. */
async function addIdentityLease(t: Test, renewedMsAgo: number): Promise<void> {
  const name = "apiserver-of-another-host";
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver" };
  const metadata = { name, namespace: "kube-system", labels };
  const renewTime = new Date(Date.now() - renewedMsAgo).toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: name, leaseDurationSeconds: 3_600, renewTime };
  await api.create(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec });
  t.teardown(() => api.delete(LEASES, metadata));
}

interface Wait {
  readonly what: string;
  readonly prepare: (t: Test) => Promise<void>;
  /** Whether the run has come to it. */
  readonly isThere: (event: MigrationEvent) => boolean;
  readonly isFrozen: boolean;
}

const NOTHING = async (): Promise<void> => undefined;
const WAITS: readonly Wait[] = [
  {
    what: "looks whether an API server lives",
    prepare: (t) => addIdentityLease(t, 3_700_000),
    isThere: ({ type }) => type === "lagging",
    isFrozen: false,
  },
  {
    what: "waits for an API server",
    prepare: (t) => addIdentityLease(t, 0),
    isThere: (event) => event.type === "waiting" && event.waitsFor === "ApiServerMissing",
    isFrozen: false,
  },
  { what: "proves its freeze", prepare: NOTHING, isThere: ({ type }) => type === "frozen", isFrozen: true },
  { what: "waits for convergence", prepare: NOTHING, isThere: ({ type }) => type === "proven", isFrozen: true },
  { what: "waits for late writes", prepare: NOTHING, isThere: ({ type }) => type === "settling", isFrozen: true },
];

for (const [how, { resume, suspend }] of Object.entries(WAYS)) {
  for (const [at, { isFrozen, isThere, prepare, what }] of WAITS.entries()) {
    await t.test(`${how} stops a run within seconds while it ${what}`, async (t) => {
      await prepare(t);
      t.teardown(resume);
      const kind = new TestKind(`early${how.startsWith("spec") ? "one" : "all"}${at}`);
      await cluster.createStale(kind, 3);
      const events: MigrationEvent[] = [];
      const observe = () => ({
        event: (event: MigrationEvent) => events.push(event),
        completed: () => undefined,
        pulse: NO_PULSE,
        end: () => undefined,
      });
      const { stop } = startController(t, cluster, { guard: "policy", settleMs: 120_000, observe });
      const migration = await createMigration(cluster, kind);
      await eventually(async () => events.some(isThere), `the run ${what}`, 60_000);
      await suspend(migration);
      const since = performance.now();
      const suspended = await untilState(cluster, migration, ["Suspended"], 60_000);
      const ms = performance.now() - since;
      t.comment(`suspended after ${Math.round(ms)} ms`);
      t.ok(ms < SOON_MS, `${Math.round(ms)} ms`);
      t.equal(stateOf(suspended), "Suspended");
      t.equal(hasFreezeAnnotation(await cluster.crd(kind)), false, "the freeze is lifted");
      t.equal(
        events.some(({ type }) => type === "frozen"),
        isFrozen,
      );
      t.same(await cluster.storedAs(kind), { v1alpha1: 3 }, "nothing was written");
      await stop();
      await assertUnfrozen(t, cluster, kind);
    });
  }
}
