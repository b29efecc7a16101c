import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, MERGE_PATCH } from "../../src/kube/resources.ts";
import { noOpWrite } from "../../src/migrator/rewrite/no-op-write.ts";
import { patchesAnswered } from "../control-plane/api-requests.ts";
import { isAtLeast } from "../control-plane/features.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { conversionBy, serveConversion } from "./serve-webhook.ts";
import { parallel } from "./parallel.ts";
import { TestKind } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);

parallel("migrate works through a conversion webhook", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("convert");
  await cluster.createStale(kind, 20, { conversion: conversionBy(webhook) });
  const ref = { name: "w0", namespace: "default" };
  const before = await cluster.api.get<{ metadata: object }>(kind.resource("v1"), ref);
  const calls = webhook.calls();
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.ok(webhook.calls() > calls, "the API server converted");
  t.same(await cluster.storedAs(kind), { v1: 20 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  const after = await cluster.api.get<{ metadata: object }>(kind.resource("v1"), ref);
  t.strictSame(
    { ...after, metadata: { ...after.metadata, resourceVersion: "" } },
    { ...before, metadata: { ...before.metadata, resourceVersion: "" } },
  );
  await assertNoTraces(t, cluster, kind);
});

parallel(
  "F10: migrate does not wipe managedFields when the conversion webhook fails in mid-run (kubernetes#136919)",
  async (t) => {
    const webhook = await serveConversion(t);
    const kind = new TestKind("fields");
    await cluster.createStale(kind, 3, { conversion: conversionBy(webhook) });
    // Stored as v1, with an applier in each version: no read of them calls the webhook, and every write does, to convert
    // the managedFields of the other version. That is where a merge patch wipes them.
    const names = Array.from({ length: 12 }, (_, index) => `x${index}`);
    for (const name of [...names, "control"]) {
      for (const version of ["v1alpha1", "v1"]) {
        const metadata = { name, namespace: "default", labels: { [version]: "yes" } };
        const apply = { type: APPLY_PATCH, body: { ...kind.object(name, version), metadata } };
        const options = { fieldManager: version, force: true };
        await cluster.api.patch(kind.resource(version), { name, namespace: "default" }, apply, options);
      }
    }
    const managersOf = async (name: string): Promise<readonly unknown[]> => {
      const ref = { name, namespace: "default" };
      const { metadata } = await cluster.api.get<PartialObjectMetadata>(kind.resource("v1"), ref);
      return (metadata.managedFields ?? []).map(({ manager, apiVersion, fieldsV1 }) => [manager, apiVersion, fieldsV1]);
    };
    const before = await Promise.all(names.map(managersOf));
    t.ok(before.every((entries) => entries.length === 2));
    const { metadata: control } = await cluster.api.get<PartialObjectMetadata>(kind.resource("v1"), {
      name: "control",
      namespace: "default",
    });

    const stored = await cluster.storedAs(kind);
    const ended = cluster.migrate([kind.name, "--max-qps", "3"]);
    const isUnderWay = async (): Promise<boolean> => (await cluster.storedAs(kind))["v1"] !== stored["v1"];
    await eventually(isUnderWay, "objects are rewritten");
    webhook.setDown(true);
    const failed = async (): Promise<number> => patchesAnswered(cluster.controlPlane, kind.plural, 500);
    await eventually(async () => (await failed()) > 0, "a write met the webhook that is down");
    const target = { ...kind.resource("v1"), kind: kind.kind };
    const options = { patchType: MERGE_PATCH, signal: AbortSignal.timeout(60_000) };
    await noOpWrite(cluster.api.transport, target, control, options);
    if (!isAtLeast(37)) {
      t.same(await managersOf("control"), [], "negative control: a merge patch wipes them at this very moment");
    }
    webhook.setDown(false);

    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await Promise.all(names.map(managersOf)), before);
    t.same(await cluster.storedAs(kind), { v1: names.length + 4 });
  },
);

parallel(
  "A list that fails as a whole, by one object that cannot be converted: the rest is migrated, and it is named",
  async (t) => {
    let isBroken = true;
    const webhook = await serveConversion(t, (name) => isBroken && name === "w3");
    const kind = new TestKind("refused");
    await cluster.createStale(kind, 8, { conversion: conversionBy(webhook) });
    const whyListFails = (): Promise<string> =>
      cluster.api.listMetadata(kind.resource("v1"), { limit: 500 }).then(() => "", messageOf);
    await eventually(async () => /w3 cannot be converted/.test(await whyListFails()), "the list fails as a whole");
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 3, run.stderr);
    t.match(run.stderr, /default\/w3: .*w3 cannot be converted/);
    t.same(await cluster.storedAs(kind), { v1: 7, v1alpha1: 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    isBroken = false;
    t.equal((await cluster.migrate([kind.name])).code, 0, "once it can be converted, the rest follows");
    t.same(await cluster.storedAs(kind), { v1: 8 });
  },
);

parallel(
  "A list that fails as a whole, in every served version, for longer than the budget: the run ends with its message",
  async (t) => {
    const webhook = await serveConversion(t, (name) => name === "w3");
    const kind = new TestKind("neverlisted");
    await cluster.createStale(kind, 8, { conversion: conversionBy(webhook) });
    await cluster.setVersions(kind, { storage: "v1", unserved: ["v1alpha1"] });
    const run = await cluster.migrate([kind.name, "--max-freeze-idle", "2s", "--max-idle", "10s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /w3 cannot be converted.*\[RetryBudgetExceeded\]/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    t.same(await cluster.storedAs(kind), { v1alpha1: 8 });
    await assertUnfrozen(t, cluster, kind);
  },
);

parallel(
  "An apply that fails because managedFields name a missing version falls back (kubernetes#111937)",
  async (t) => {
    const kind = new TestKind("skipped");
    const versions = ["v1alpha1", "v1", "v2"];
    await cluster.createCrd(kind, { storage: "v1alpha1", versions });
    const ref = { name: "applied", namespace: "default" };
    const apply = { type: "application/apply-patch+yaml", body: kind.object("applied", "v1alpha1") };
    await cluster.api.patch(kind.resource("v1alpha1"), ref, apply, { fieldManager: "gitops" });
    await cluster.setVersions(kind, { storage: "v1", versions });
    t.equal((await cluster.migrate([kind.name, "--managed-fields=keep"])).code, 0);
    await cluster.setVersions(kind, { storage: "v2", versions: ["v1", "v2"] });
    await cluster.waitForVersion(kind, "v1alpha1", false);
    await cluster.waitForVersion(kind, "v2");
    const noOp = { ...kind.object("applied", "v2"), metadata: ref, spec: undefined };
    await t.rejects(
      cluster.api.patch(kind.resource("v2"), ref, { ...apply, body: noOp }, { fieldManager: "test", dryRun: true }),
      /to an invalid group\/version|from an invalid group\/version/,
      "an apply does fail on this object",
    );
    const run = await cluster.migrate([kind.name, "--managed-fields=keep"]);
    t.equal(run.code, 0, run.stderr);
    // Since Kubernetes 1.37 an API server leaves managedFields that it cannot convert as they are.
    if (!isAtLeast(37)) {
      t.match(
        run.stdout,
        /: 1 rewritten \(1 of them changed beyond their encoding\)/,
        "it has no managedFields any more",
      );
      t.match(run.stderr, /emptied managedFields that name a version which is gone:\n {2}default\/applied\n/);
    }
    t.same(await cluster.storedAs(kind), { v2: 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v2"]);
  },
);
