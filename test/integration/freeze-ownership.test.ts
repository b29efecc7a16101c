import { pino } from "pino";
import t from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { MIGRATING_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { type FreezeOwner, hasFreezeAnnotation, ownerAnnotationOf } from "../../src/api/owner.ts";
import { systemClock } from "../../src/clock.ts";
import { sweepOrphans } from "../../src/controller/orphan-sweep.ts";
import { ToldReasons } from "../../src/controller/told-reasons.ts";
import { ApiClient } from "../../src/old/kube/client.ts";
import { loadKubeConfig } from "../../src/old/kube/connect/config.ts";
import {
  CRDS,
  LEASES,
  MERGE_PATCH,
  POLICIES,
  POLICY_BINDINGS,
  WEBHOOK_CONFIGURATIONS,
} from "../../src/old/kube/resources.ts";
import { Transport } from "../../src/old/kube/transport.ts";
import { freeze } from "../../src/old/freeze/freeze.ts";
import { policyGuardOf } from "../../src/old/freeze/guard-install.ts";
import { leaseNameOf } from "../../src/old/lease/lease-acquire.ts";
import { Retrier } from "../../src/old/retry/retrier.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyBase, startAsServiceAccount } from "./installation.ts";
import { parallel } from "./parallel.ts";
import { SLOW_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyBase(cluster);
// Nothing serves the webhook here: runs use policies.
await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
const { signal } = new AbortController();
const retrier = new Retrier({ clock: systemClock, random: Math.random });
// What stands for dead runs here has no Lease.
const context = { client: api, renew: () => Promise.resolve(), retrier, signal };

function clientOf(kubeconfig: string): ApiClient {
  const transport = new Transport(loadKubeConfig({ kubeconfig }));
  t.teardown(() => transport.close());
  return new ApiClient(transport);
}
/** With exactly the rights that deploy/ gives. */
const shipped = clientOf(await startAsServiceAccount(cluster, "storage-migrator"));

/** One sweep, as the controller does it. @returns what it logged about these CRDs */
async function sweep(client: ApiClient, ...kinds: readonly TestKind[]) {
  const lines: { readonly crd?: string; readonly msg: string }[] = [];
  const logger = pino({ level: "debug" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const names = kinds.map(({ name }) => name);
  await sweepOrphans({
    client,
    clock: systemClock,
    retrier,
    logger,
    identity: "test/sweep",
    namespace: SYSTEM_NAMESPACE,
    signal,
    // Tests run side by side.
    isBusy: (crdName) => !names.includes(crdName),
    isDead: () => false,
    assertLeading: () => undefined,
    told: new ToldReasons(),
  });
  return lines.map(({ msg }) => msg);
}

function deadOwner(kind: TestKind, namespace = SYSTEM_NAMESPACE, name = leaseNameOf(kind.name)): FreezeOwner {
  return { lease: `${namespace}/${name}`, identity: `dead-${kind.plural}`, since: "2026-01-01T00:00:00.000Z" };
}

/** As `kubectl annotate` does it. */
async function annotate(kind: TestKind, value: string | null): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING_ANNOTATION]: value } } } };
  await api.patch(CRDS, kind, patch, { fieldManager: "kubectl-annotate" });
}

async function isFrozen(kind: TestKind): Promise<boolean> {
  return hasFreezeAnnotation(await cluster.crd(kind));
}

parallel("a freeze that a user adds after that of a dead run is not swept, and no run takes it over", async (t) => {
  const kind = new TestKind("manual");
  await cluster.createStale(kind, 1);
  await freeze(context, kind.name, deadOwner(kind, "kube-system"));
  await annotate(kind, null);
  t.ok(ownerAnnotationOf(await cluster.crd(kind)), "the owner of the dead run is still noted");
  await annotate(kind, "true");
  await sweep(shipped, kind);
  t.ok(await isFrozen(kind), "the sweep leaves it");
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 1);
  t.match(run.stderr, /frozen by something other than ksvm.*\[ForeignFreeze\]/);
  t.ok(await isFrozen(kind), "a run leaves it");
  t.same(await cluster.storedAs(kind), { v1alpha1: 1 });
});

parallel("the rights of deploy/ are enough to sweep what a killed command-line run left", async (t) => {
  for (const isLeaseThere of [true, false]) {
    const kind = new TestKind(isLeaseThere ? "expired" : "deleted");
    await cluster.createStale(kind, SLOW_RUN_OBJECTS);
    const run = cluster.spawnKsvm(t, ["migrate", "--settle", "1s", ...SLOW_FLAGS, kind.name]);
    await untilRewriting(cluster, kind);
    t.match(await sweep(shipped, kind), [], "a run that lives is left alone");
    t.ok(await isFrozen(kind));
    run.signal("SIGKILL");
    await run.ended;
    const lease = { namespace: "kube-system", name: leaseNameOf(kind.name) };
    if (!isLeaseThere) await api.delete(LEASES, lease);
    t.same(await sweep(shipped, kind), ["Lifted the freeze that a dead run left behind"]);
    t.notOk(await isFrozen(kind));
    t.equal(await api.find(POLICIES, policyGuardOf(kind.name)), undefined);
    t.equal(await api.find(POLICY_BINDINGS, policyGuardOf(kind.name)), undefined);
    // Its checkpoint, for the next run.
    await api.delete(LEASES, lease);
    await assertNoTraces(t, cluster, kind);
  }
});
