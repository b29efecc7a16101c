import { pino } from "pino";
import t from "tap";
import { hasFreezeAnnotation, ownerAnnotationOf } from "./frozen.ts";
import { systemClock } from "../../src/clock.ts";
import { liftLeftFreezes } from "../../src/controller/freezes.ts";
import { type FreezeOwner, policyName } from "../../src/freeze/freeze.ts";
import { CRD_FIELD_MANAGER, MIGRATING, MIGRATING_VALUE, OWNER, WEBHOOK_NAME } from "../../src/freeze/rule.ts";
import { leaseName } from "../../src/migrator/run-lease.ts";
import {
  type ApiClient,
  CRDS,
  LEASES,
  MERGE_PATCH,
  POLICIES,
  POLICY_BINDINGS,
  WEBHOOK_CONFIGURATIONS,
} from "../api-client.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { applyBase, startAsServiceAccount } from "./installation.ts";
import { parallel } from "./parallel.ts";
import { INTERRUPTED_FLAGS, SLOW_RUN_OBJECTS, untilRewriting } from "./slow-run.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;
await applyBase(cluster);
// Nothing serves the webhook here: runs use policies.
await api.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
/** With exactly the rights that deploy/ gives. */
const shipped = cluster.clientBy(await startAsServiceAccount(cluster, "storage-migrator"));

/** One sweep, as the controller does it. @returns what it logged about these CRDs */
async function sweep(client: ApiClient, ...kinds: readonly TestKind[]) {
  const lines: { readonly crd?: string; readonly msg: string }[] = [];
  const logger = pino({ level: "debug" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const names = kinds.map(({ name }) => name);
  const swept = new AbortController();
  const options = {
    client: client.kube,
    // It waits for the next one.
    clock: { ...systemClock, sleep: async () => swept.abort() },
    logger,
    // Tests run side by side.
    isBusy: (crdName: string) => !names.includes(crdName),
    onFrozen: () => undefined,
  };
  await liftLeftFreezes(options, swept.signal);
  return lines.map(({ msg }) => msg);
}

/** As a run does that is dead by now. */
async function freezeAsDeadRun(kind: TestKind): Promise<void> {
  const owner: FreezeOwner = {
    lease: `kube-system/${leaseName(kind.name)}`,
    identity: `dead-${kind.plural}`,
    since: "2026-01-01T00:00:00.000Z",
  };
  const annotations = { [MIGRATING]: MIGRATING_VALUE, [OWNER]: JSON.stringify(owner) };
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations } } };
  await api.patch(CRDS, kind, patch, { fieldManager: CRD_FIELD_MANAGER });
}

/** As `kubectl annotate` does it. */
async function annotate(kind: TestKind, value: string | null): Promise<void> {
  const patch = { type: MERGE_PATCH, body: { metadata: { annotations: { [MIGRATING]: value } } } };
  await api.patch(CRDS, kind, patch, { fieldManager: "kubectl-annotate" });
}

async function isFrozen(kind: TestKind): Promise<boolean> {
  return hasFreezeAnnotation(await cluster.crd(kind));
}

parallel("a freeze that a user adds after that of a dead run is not swept, and no run takes it over", async (t) => {
  const kind = new TestKind("manual");
  await cluster.createStale(kind, 1);
  await freezeAsDeadRun(kind);
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
    const run = cluster.spawnKsvm(t, ["migrate", "--unsafe-settle", "1s", ...INTERRUPTED_FLAGS, kind.name]);
    await untilRewriting(cluster, kind);
    t.match(await sweep(shipped, kind), [], "a run that lives is left alone");
    t.ok(await isFrozen(kind));
    run.signal("SIGKILL");
    await run.ended;
    const lease = { namespace: "kube-system", name: leaseName(kind.name) };
    if (!isLeaseThere) await api.delete(LEASES, lease);
    t.same(await sweep(shipped, kind), ["Lifted the freeze that a dead run left behind"]);
    t.notOk(await isFrozen(kind));
    const policy = { name: policyName(kind.name) };
    t.equal(await api.find(POLICIES, policy), undefined);
    t.equal(await api.find(POLICY_BINDINGS, policy), undefined);
    // Its checkpoint, for the next run.
    await api.delete(LEASES, lease);
    await assertNoTraces(t, cluster, kind);
  }
});
