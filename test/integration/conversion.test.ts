import t from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { messageOf } from "../../src/errors.ts";
import { assertNoTraces } from "./assert-no-traces.ts";
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
    await cluster.createStale(kind, 5, { conversion: conversionBy(webhook) });
    const managers = async (): Promise<readonly number[]> =>
      (await cluster.api.listMetadata(kind.resource("v1"))).items.map(
        (item) => item.metadata.managedFields?.length ?? 0,
      );
    // An applier in each version: the entries of one of them have to be converted with every write.
    for (const version of ["v1alpha1", "v1"]) {
      const body = {
        ...kind.object("w0", version),
        metadata: { name: "w0", namespace: "default", labels: { [version]: "yes" } },
      };
      const apply = { type: "application/apply-patch+yaml", body };
      await cluster.api.patch(kind.resource(version), { name: "w0", namespace: "default" }, apply, {
        fieldManager: version,
        force: true,
      });
    }
    // Only this object was written as v1 by that; the others are still stored as v1alpha1.
    const before = await managers();
    t.ok(before.every((count) => count > 0));
    const ended = cluster.migrate([kind.name, "--max-qps", "5"]);
    await eventually(async () => ((await cluster.storedAs(kind))["v1"] ?? 0) > 1, "objects are rewritten");
    webhook.setDown(true);
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    webhook.setDown(false);
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await managers(), before);
    t.same(await cluster.storedAs(kind), { v1: 5 });
  },
);

parallel(
  "A list that fails as a whole, by one object that cannot be converted: the rest is migrated, and it is named",
  async (t) => {
    let isBroken = true;
    const webhook = await serveConversion(t, (name) => isBroken && name === "w3");
    const kind = new TestKind("refused");
    await cluster.createStale(kind, 8, { conversion: conversionBy(webhook) });
    const whyListFails = (): Promise<string> => cluster.api.listMetadata(kind.resource("v1")).then(() => "", messageOf);
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
  "A list that fails as a whole, in every served version: it is waited for, and its message is shown",
  async (t) => {
    let isBroken = true;
    const webhook = await serveConversion(t, (name) => isBroken && name === "w3");
    const kind = new TestKind("unlistable");
    await cluster.createStale(kind, 8, { conversion: conversionBy(webhook) });
    await cluster.setVersions(kind, { storage: "v1", unserved: ["v1alpha1"] });
    let output = "";
    const ended = cluster.migrate([kind.name], {
      onStdout: (text) => {
        output += text;
      },
    });
    await eventually(async () => /trying again .*w3 cannot be converted/.test(output), "the run waits and says why");
    t.same(await cluster.storedAs(kind), { v1alpha1: 8 });
    isBroken = false;
    const { code, stderr } = await ended;
    t.equal(code, 0, stderr);
    t.same(await cluster.storedAs(kind), { v1: 8 });
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
    t.equal((await cluster.migrate([kind.name])).code, 0);
    await cluster.setVersions(kind, { storage: "v2", versions: ["v1", "v2"] });
    await cluster.waitForVersion(kind, "v1alpha1", false);
    await cluster.waitForVersion(kind, "v2");
    const noOp = { ...kind.object("applied", "v2"), metadata: ref, spec: undefined };
    await t.rejects(
      cluster.api.patch(kind.resource("v2"), ref, { ...apply, body: noOp }, { fieldManager: "test", dryRun: true }),
      /to an invalid group\/version|from an invalid group\/version/,
      "an apply does fail on this object",
    );
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 0, run.stderr);
    t.same(await cluster.storedAs(kind), { v2: 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v2"]);
  },
);
