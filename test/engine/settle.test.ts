import t from "tap";
import { chooseGuard, freeze, policyName, unfreeze, unfreezeLeftBehind } from "../../src/freeze/freeze.ts";
import { MIGRATING, OWNER } from "../../src/freeze/rule.ts";
import { CRDS, LEASES, POLICIES } from "../../src/kube/objects.ts";
import { migrateCrds } from "../../src/migrator/migrate-crd.ts";
import { KsvmProcess } from "../chaos/ksvm-process.ts";
import { FakeClock } from "../fake-clock.ts";
import { grant } from "./grant.ts";
import { fileOf } from "../integration/crd-file.ts";
import { serveWebhook } from "../integration/serve-webhook.ts";
import { GROUP, TestKind } from "../integration/crd-fixture.ts";
import { alone, parallel } from "../integration/parallel.ts";
import { Cluster, eventually, signal } from "./cluster.ts";

const cluster = await Cluster.start(t);
const { client, controlPlane } = cluster;
const HOUR = 3_600_000;

parallel("a create that is held across the storage change, and lands late, is rewritten", async (t) => {
  const kind = new TestKind("held");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await cluster.createObjects(kind, kind.objects(3, "v1alpha1"), "v1alpha1");
  let isHolding = false;
  const webhook = await serveWebhook(t, async ({ request }: { request: { uid: string; name: string } }) => {
    if (request.name === "held") {
      isHolding = true;
      await new Promise((resolve) => setTimeout(resolve, 8_000));
    }
    const response = { uid: request.uid, allowed: true };
    return { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", response };
  });
  const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
  const rule = { apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["CREATE"] };
  const hold = {
    name: "hold.example.com",
    clientConfig: webhook.clientConfig,
    rules: [rule],
    sideEffects: "None",
    timeoutSeconds: 20,
    admissionReviewVersions: ["v1"],
  };
  const metadata = { name: kind.plural };
  const apiVersion = "admissionregistration.k8s.io/v1";
  await client.create(
    path,
    { apiVersion, kind: "ValidatingWebhookConfiguration", metadata, webhooks: [hold] },
    { signal },
  );
  t.teardown(() => client.delete(`${path}/${kind.plural}`, { signal }));
  await eventually(async () => {
    await client
      .create(cluster.path(kind, "", "v1alpha1").slice(0, -1), kind.object("probe", "v1alpha1"), {
        dryRun: true,
        signal,
      })
      .catch(() => undefined);
    return webhook.calls() > 0;
  }, "the webhook is in force");
  const create = cluster.createObjects(kind, [kind.object("held", "v1alpha1")], "v1alpha1");
  await eventually(async () => isHolding, "the create is held");
  await cluster.setVersions(kind, { storage: "v1" });
  const { result } = await cluster.migrate(kind, { settleMs: 12_000 });
  await create;
  t.match(result, { outcome: "migrated", tally: { rewritten: 4 } });
  t.same(await cluster.storedAs(kind), { v1: 4 });
});

/** Has a CRD look as if it was created, and changed for the last time, so many hours ago. No client can do that. */
async function backdate({ name }: TestKind, hours: number): Promise<void> {
  const key = `/registry/apiextensions.k8s.io/customresourcedefinitions/${name}`;
  const stored = String((await controlPlane.stored.readKey(key))?.value);
  const time = new Date(Date.now() - hours * HOUR).toISOString().replace(/\.\d+/, "");
  const backdated = stored.replaceAll(/"(creationTimestamp|time)":"[^"]+"/g, `"$1":"${time}"`);
  await controlPlane.stored.writeKey(key, backdated);
}

parallel("a change that is more than three hours old needs no wait", async (t) => {
  const kinds = ["old", "older", "oldest"].map((word) => new TestKind(word));
  const names = kinds.map(({ name }) => name);
  await Promise.all(kinds.map((kind) => cluster.createStale(kind, 5)));
  for (const kind of kinds) await backdate(kind, 4);
  const start = performance.now();
  const run = new KsvmProcess(t, controlPlane.kubeconfigFor(), names);
  const { code, lines, stderr } = await run.ended;
  const seconds = (performance.now() - start) / 1_000;
  t.comment(`three CRDs of five objects took ${seconds.toFixed(2)} s`);
  t.equal(code, 0, stderr);
  t.notOk(lines.some(({ type }) => type === "settling" || type === "waiting"));
  t.ok(seconds < 60, "less than the wait, also on a machine that does much else");
  for (const kind of kinds) {
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same((await cluster.crd(kind)).status?.storedVersions, ["v1"]);
  }
});

parallel("a change that is two hours old is waited for", async (t) => {
  const kind = new TestKind("recent");
  await cluster.createStale(kind, 5);
  await backdate(kind, 2);
  const run = new KsvmProcess(t, controlPlane.kubeconfigFor(), [kind.name]);
  t.match(await run.untilLine("settling", "frozen"), { type: "settling", leftMs: 90_000 });
  run.interrupt();
  t.equal((await run.ended).code, 130);
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
});

parallel(
  "a storage version that ksvm migrate -f has moved is waited for, though it leaves no trace of that",
  async (t) => {
    const kind = new TestKind("moved");
    await cluster.createCrd(kind, { storage: "v1alpha1" });
    await cluster.createObjects(kind, kind.objects(3, "v1alpha1"), "v1alpha1");
    await backdate(kind, 4);
    const file = fileOf(t, kind.manifest({ versions: ["v1alpha1", "v1"], storage: "v1" }));
    const moved = await new KsvmProcess(t, controlPlane.kubeconfigFor(), ["-f", file, "--apply"]).ended;
    t.equal(moved.code, 0, moved.stderr);
    const run = new KsvmProcess(t, controlPlane.kubeconfigFor(), [kind.name]);
    t.match(await run.untilLine("settling", "frozen"), { type: "settling", leftMs: 90_000 });
    run.interrupt();
    t.equal((await run.ended).code, 130);
  },
);

parallel("rights that are missing are named all at once, and nothing is changed", async (t) => {
  const kind = new TestKind("rights");
  await cluster.createStale(kind, 2);
  await grant(client, t, "reader", [
    { apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get"] },
  ]);
  const reader = await Cluster.connect(t, controlPlane, { user: "reader" });
  const { error } = await reader.migrate(kind);
  t.match(error, { code: "Forbidden" });
  for (const right of [
    `list ${kind.plural}.${GROUP}`,
    "patch customresourcedefinitions.apiextensions.k8s.io/status",
    "create validatingadmissionpolicies.admissionregistration.k8s.io",
    'create leases.coordination.k8s.io in namespace "kube-system"',
    'list leases.coordination.k8s.io in namespace "kube-system"',
  ]) {
    t.ok(error?.message.includes(right), `${right} in ${error?.message}`);
  }
  t.same(await cluster.storedAs(kind), { v1alpha1: 2 });
});

parallel("a freeze is lifted where its owner holds no live Lease, and only there", async (t) => {
  const kind = new TestKind("behind");
  await cluster.createStale(kind, 200);
  const abort = new AbortController();
  let isFrozen = false;
  const run = cluster.migrate(kind, {
    maxQps: 10,
    signal: abort.signal,
    onEvent: ({ type }) => {
      isFrozen ||= type === "frozen";
    },
  });
  await eventually(async () => isFrozen, "it is frozen");
  t.notOk(await unfreezeLeftBehind(client, await cluster.crd(kind), signal), "its run lives");
  abort.abort(new Error("over"));
  await run;

  const owner = { lease: `kube-system/ksvm-migrate.${kind.name}`, identity: "dead", since: "2026-01-01T00:00:00Z" };
  const annotations = { "ksvm.sigs.k8s.io/migrating": "true", [OWNER]: JSON.stringify(owner) };
  const options = { fieldManager: "ksvm-freeze", signal };
  await client.patch(`${CRDS}/${kind.name}`, { metadata: { annotations } }, options);
  t.ok(await unfreezeLeftBehind(client, await cluster.crd(kind), signal));
  await cluster.assertUnfrozen(t, kind);

  const foreign = { "ksvm.sigs.k8s.io/migrating": "theirs" };
  await client.patch(`${CRDS}/${kind.name}`, { metadata: { annotations: foreign } }, { fieldManager: "other", signal });
  t.notOk(await unfreezeLeftBehind(client, await cluster.crd(kind), signal), "another client's freeze is its own");
  const { error } = await cluster.migrate(kind);
  t.match(error, { code: "ForeignFreeze" });
  t.equal(await client.find(`${POLICIES}/${policyName(kind.name)}`, { signal }), undefined, "no policy is left");
  t.equal(await client.find(`${LEASES}/kube-system/leases/nothing`, { signal }), undefined);
});

parallel("a run removes no policy but its own", async (t) => {
  const kind = new TestKind("owned");
  await cluster.createStale(kind, 1);
  const owner = { lease: `kube-system/ksvm-migrate.${kind.name}`, identity: "one", since: "2026-01-01T00:00:00Z" };
  const guard = await chooseGuard(client, kind.name, signal);
  await freeze(client, await cluster.crd(kind), { guard, owner, signal });
  t.notOk(await unfreeze(client, kind.name, "another"));
  t.ok(await client.find(`${POLICIES}/${policyName(kind.name)}`, { signal }));
  t.match((await cluster.crd(kind)).metadata.annotations, { [MIGRATING]: "true" });
  t.ok(await unfreeze(client, kind.name, "one"));
  await cluster.assertUnfrozen(t, kind);
});

parallel("a storage version that is not served is refused where writes would drop fields", async (t) => {
  const kind = new TestKind("unserved");
  await cluster.createStale(kind, 2);
  await cluster.setVersions(kind, { storage: "v1", unserved: ["v1"] });
  const same = await cluster.migrate(kind);
  t.match(same.result, { outcome: "migrated" });
  t.same(await cluster.storedAs(kind), { v1: 2 });
  const specSchemas = { v1alpha1: { type: "object", properties: { size: { type: "integer" } } } };
  await cluster.setVersions(kind, { storage: "v1", unserved: ["v1"], specSchemas });
  t.match((await cluster.migrate(kind, { force: true })).error, {
    code: "ResourceNotMigratable",
    message: /drop fields/,
  });
  await cluster.setVersions(kind, { storage: "v1", unserved: ["v1", "v1alpha1"] });
  const [none] = await migrateCrds(client, [kind.name], {
    identity: "x",
    force: true,
    signal,
    onEvent: () => undefined,
  });
  t.match(none, { error: { code: "ResourceNotMigratable", message: /serves no version/ } });
});

/** A clock on which each sleep is over at once, and counts 2,000 times: a second for half an hour. */
class HurriedClock extends FakeClock {
  override sleep(ms: number, sleeping?: AbortSignal): Promise<void> {
    return super.sleep(ms * 2_000, sleeping);
  }
}

alone("a run that misses an API server is never frozen, and ends once no Lease of one could be left", async (t) => {
  const kind = new TestKind("missing");
  await cluster.createStale(kind, 3);
  const { resourceVersion } = (await cluster.crd(kind)).metadata;
  const path = `${LEASES}/kube-system/leases`;
  const labels = { "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "alpha" };
  const renewTime = new Date().toISOString().replace("Z", "000Z");
  const spec = { holderIdentity: "apiserver-gone_1", leaseDurationSeconds: 3_600, renewTime };
  await client.create(path, { metadata: { name: "apiserver-gone", labels }, spec }, { signal });
  const clock = new HurriedClock();
  const hurried = await Cluster.connect(t, controlPlane, { clock });
  const tooLong = new AbortController();
  const { error, events } = await hurried.migrate(kind, {
    signal: tooLong.signal,
    onEvent: () => {
      if (clock.monotonic() > 3 * HOUR) tooLong.abort(new Error("it goes on for ever"));
    },
  });
  const named = /1 of 2 answer; identity Leases: .*apiserver-gone of host alpha, last renewed/;
  t.ok(events.some((event) => event.type === "waiting" && event.for === "apiServer" && named.test(event.reason)));
  t.match(error, { code: "ApiServerMissing", message: named });
  t.match(error?.message, /delete its identity Lease in kube-system, or pass its name with --ignore-apiserver/);
  t.ok(clock.monotonic() > HOUR, "it waited for longer than a Lease lives");
  t.equal((await cluster.crd(kind)).metadata.resourceVersion, resourceVersion, "the CRD was left alone all the time");
  t.same(await cluster.storedAs(kind), { v1alpha1: 3 });

  await client.delete(`${path}/apiserver-gone`, { signal });
  t.match((await cluster.migrate(kind)).result, { outcome: "migrated" });
});
