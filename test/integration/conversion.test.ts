// Webhooks of others that a run needs: conversion webhooks, and an operator's own admission webhook.
import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import type { PartialObjectMetadata } from "../../src/api/meta.ts";
import { messageOf } from "../../src/errors.ts";
import { APPLY_PATCH, CRDS, MERGE_PATCH, WEBHOOK_CONFIGURATIONS } from "../api-client.ts";
import { patchesAnswered } from "../control-plane/api-requests.ts";
import { assertNoTraces, assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster, eventually } from "./cluster.ts";
import { conversionBy, serveConversion, serveWebhook } from "./serve-webhook.ts";
import { parallel } from "./parallel.ts";
import { GROUP, TestKind, versionsOf } from "./crd-fixture.ts";

const cluster = await Cluster.start(t);
const { api } = cluster;

/** Starts a run whose output can be read while it runs. */
function startRun(args: readonly string[]) {
  const seen = { output: "" };
  const ended = cluster.migrate(args, {
    onStdout: (text) => {
      seen.output += text;
    },
  });
  return { seen, ended };
}

parallel("migrate works through a conversion webhook", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("convert");
  await cluster.createStale(kind, 20, { conversion: conversionBy(webhook) });
  const ref = { name: "w0", namespace: "default" };
  const before = await api.get<{ metadata: object }>(kind.resource("v1"), ref);
  const calls = webhook.calls();
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.ok(webhook.calls() > calls, "the API server converted");
  t.same(await cluster.storedAs(kind), { v1: 20 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  const after = await api.get<{ metadata: object }>(kind.resource("v1"), ref);
  t.strictSame(
    { ...after, metadata: { ...after.metadata, resourceVersion: "" } },
    { ...before, metadata: { ...before.metadata, resourceVersion: "" } },
  );
  t.match(run.stdout, /: managedFields still name v1alpha1 \(20 objects\)/);
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
    for (const name of names) {
      for (const version of ["v1alpha1", "v1"]) {
        const metadata = { name, namespace: "default", labels: { [version]: "yes" } };
        const apply = { type: APPLY_PATCH, body: { ...kind.object(name, version), metadata } };
        const options = { fieldManager: version, force: true };
        await api.patch(kind.resource(version), { name, namespace: "default" }, apply, options);
      }
    }
    const managersOf = async (name: string): Promise<readonly unknown[]> => {
      const ref = { name, namespace: "default" };
      const { metadata } = await api.get<PartialObjectMetadata>(kind.resource("v1"), ref);
      return (metadata.managedFields ?? []).map(({ manager, apiVersion, fieldsV1 }) => [manager, apiVersion, fieldsV1]);
    };
    const before = await Promise.all(names.map(managersOf));
    t.ok(before.every((entries) => entries.length === 2));
    const stored = await cluster.storedAs(kind);
    const ended = cluster.migrate([kind.name, "--max-qps", "1"]);
    const isUnderWay = async (): Promise<boolean> => (await cluster.storedAs(kind))["v1"] !== stored["v1"];
    await eventually(isUnderWay, "objects are rewritten");
    webhook.setDown(true);
    const failed = async (): Promise<number> => patchesAnswered(cluster.controlPlane, kind.plural, 500);
    await eventually(async () => (await failed()) > 0, "a write met the webhook that is down");
    webhook.setDown(false);

    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await Promise.all(names.map(managersOf)), before);
    t.same(await cluster.storedAs(kind), { v1: names.length + 3 });
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
      api.listMetadata(kind.resource("v1"), { limit: 500 }).then(() => "", messageOf);
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
    const run = await cluster.migrate([kind.name, "--max-idle", "4s"]);
    t.equal(run.code, 1, run.stdout);
    t.match(run.stderr, /w3 cannot be converted/);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    t.same(await cluster.storedAs(kind), { v1alpha1: 8 });
    await assertUnfrozen(t, cluster, kind);
  },
);

parallel("F9: a conversion webhook that is down is waited for by its name, and does not fail the run", async (t) => {
  const webhook = await serveConversion(t);
  const kind = new TestKind("down");
  await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
  webhook.setDown(true);
  const { seen, ended } = startRun([kind.name]);
  await eventually(
    async () => /waiting without a freeze: .*conversion webhook for example.com/.test(seen.output),
    "the run waits",
  );
  t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
  webhook.setDown(false);
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.same(await cluster.storedAs(kind), { v1: 5 });
  await assertNoTraces(t, cluster, kind);
});

parallel(
  "F8: an operator's own admission webhook that has no endpoints yet is waited for without a freeze",
  async (t) => {
    const webhook = await serveWebhook(t, ({ request }: { request: { uid: string } }) => ({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: request.uid, allowed: true },
    }));
    const kind = new TestKind("own");
    await cluster.createStale(kind, 5);
    await api.create(WEBHOOK_CONFIGURATIONS, {
      apiVersion: "admissionregistration.k8s.io/v1",
      kind: "ValidatingWebhookConfiguration",
      metadata: { name: kind.plural },
      webhooks: [
        {
          name: "own.example.com",
          clientConfig: webhook.clientConfig,
          rules: [{ apiGroups: [GROUP], apiVersions: ["*"], resources: [kind.plural], operations: ["UPDATE"] }],
          sideEffects: "None",
          admissionReviewVersions: ["v1"],
        },
      ],
    });
    t.teardown(() => api.delete(WEBHOOK_CONFIGURATIONS, { name: kind.plural }));
    webhook.setDown(true);
    const touch = { type: MERGE_PATCH, body: { metadata: { labels: { touched: "yes" } } } };
    const isRefused = (): Promise<boolean> =>
      api.patch(kind.resource("v1"), { name: "w0", namespace: "default" }, touch, { dryRun: true }).then(
        () => false,
        () => true,
      );
    await eventually(isRefused, "the webhook is in force");

    const { seen, ended } = startRun([kind.name]);
    const isNamed = async (): Promise<boolean> =>
      /waiting without a freeze: .*failed calling webhook "own.example.com"/.test(seen.output);
    await eventually(isNamed, "the run names it");
    await assertUnfrozen(t, cluster, kind);
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    webhook.setDown(false);
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    await assertNoTraces(t, cluster, kind);
  },
);

parallel(
  "Long waits do not hold the freeze: it never blocks the update of the CRD that repairs its own conversion webhook",
  async (t) => {
    const [broken, repaired] = [await serveConversion(t), await serveConversion(t)];
    const kind = new TestKind("repair");
    await cluster.createStale(kind, 5, { conversion: conversionBy(broken) });
    broken.setDown(true);
    const { seen, ended } = startRun([kind.name]);
    await eventually(async () => /waiting without a freeze/.test(seen.output), "the run waits");
    await assertUnfrozen(t, cluster, kind);
    // The upgrade that brings the new webhook makes another version the storage version, too: a freeze would deny it.
    const upgrade = { spec: { versions: versionsOf({ storage: "v1alpha1" }), conversion: conversionBy(repaired) } };
    await t.resolves(api.patch(CRDS, kind, { type: MERGE_PATCH, body: upgrade }), "the repair is accepted");
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1alpha1: 5 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1"], "what is stored, after all, is what is listed");
    await assertNoTraces(t, cluster, kind);
  },
);

parallel("spec.conversion changes in the middle of a run: it begins again, and settles again", async (t) => {
  const kind = new TestKind("reconverted");
  await cluster.createStale(kind, 12);
  const body = { spec: { conversion: conversionBy(await serveConversion(t)) } };
  const { seen, ended } = startRun([kind.name, "--max-qps", "1"]);
  await eventually(async () => ((await cluster.storedAs(kind))["v1"] ?? 0) > 0, "objects are rewritten");
  await api.patch(CRDS, kind, { type: MERGE_PATCH, body }, { fieldManager: "operator" });
  t.ok(((await cluster.storedAs(kind))["v1alpha1"] ?? 0) > 0, "the run is not over");
  const { code, stderr } = await ended;
  t.equal(code, 0, stderr);
  t.equal(seen.output.match(/requests of before have ended/g)?.length, 2, seen.output);
  t.same(await cluster.storedAs(kind), { v1: 12 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  await assertNoTraces(t, cluster, kind);
});
