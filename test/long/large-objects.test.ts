import { readFileSync } from "node:fs";
import t, { type Test } from "tap";
import { storedVersionsOf } from "../crd.ts";
import { startProgram } from "../processes/program.ts";
import { bundle } from "../../tools/build.ts";
import { Cluster } from "../integration/cluster.ts";
import { TestKind } from "../integration/crd-fixture.ts";
import { createAnnotated } from "./large-objects.ts";

const OBJECTS = 500;
const ANNOTATION_BYTES = 200_000;
/**
 * Generous: 150 MiB on a busy machine, and 454 to 664 with pages of 500 objects that were parsed whole. `make bench-memory`
 * prints the figures that the design sets limits for.
 */
const BOUND_MIB = 250;
const SAMPLE_MS = 50;

const cluster = await Cluster.start(t);

/** Runs a program to its end and tells how large its resident set was at most. */
async function peakOf(t: Test, args: readonly string[]) {
  const program = startProgram(t, process.execPath, args, { withoutTap: true });
  let peakMib = 0;
  const timer = setInterval(() => {
    try {
      const status = readFileSync(`/proc/${program.pid}/status`, "latin1");
      // The last one: before its exec the child shows the memory of this process.
      peakMib = Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? peakMib * 1_024) / 1_024;
    } catch {
      // It has ended.
    }
  }, SAMPLE_MS);
  const { code, stdout, stderr } = await program.ended;
  clearInterval(timer);
  return { code, output: stdout + stderr, peakMib };
}

await t.test("500 objects with 200 KB of annotations each do not fill the memory of ksvm migrate", async (t) => {
  const kind = new TestKind("annotated");
  await cluster.createCrd(kind, { storage: "v1alpha1" });
  await createAnnotated(cluster, kind, { count: OBJECTS, bytes: ANNOTATION_BYTES, version: "v1alpha1" });
  await cluster.setVersions(kind, { storage: "v1" });
  const program = await bundle();
  const flags = ["--unsafe-settle", "1s", "--kubeconfig", cluster.kubeconfig];
  const { code, output, peakMib } = await peakOf(t, [program, "migrate", kind.name, ...flags]);
  t.equal(code, 0, output);
  t.comment(`peak: ${peakMib.toFixed(0)} MiB`);
  t.ok(peakMib > 30 && peakMib < BOUND_MIB, `${peakMib.toFixed(0)} MiB at the peak`);
  t.same(await cluster.storedAs(kind), { v1: OBJECTS });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
});

await t.test(
  "a write that etcd refuses as too large is that object's failure, and the others are migrated",
  async (t) => {
    const kind = new TestKind("toolarge");
    // The name of the storage version is longer than the one before, and so is what is stored.
    const versions = ["v1", "v1alpha1"];
    await cluster.createCrd(kind, { storage: "v1", versions });
    await cluster.createObjects(kind.resource("v1"), kind.objects(3, "v1"));
    await createLargest(kind, "v1");
    await cluster.setVersions(kind, { storage: "v1alpha1", versions });
    const { code, stdout } = await cluster.migrate([kind.name, "-o", "json"]);
    t.equal(code, 3, stdout);
    t.match(stdout, /"name":"largest","reason":"[^"]*too large/);
    t.equal(stdout.match(/"type":"frozen"/g)?.length, 1);
    t.same(await cluster.storedAs(kind), { v1: 1, v1alpha1: 3 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1", "v1alpha1"]);
  },
);

/** Creates the largest object that etcd takes. */
async function createLargest(kind: TestKind, version: string): Promise<void> {
  const object = kind.object("largest", version);
  const withText = (length: number) => ({ ...object, spec: { text: "x".repeat(length) } });
  let [fits, tooLong] = [1_500_000, 1_580_000];
  while (tooLong - fits > 1) {
    const length = Math.floor((fits + tooLong) / 2);
    const isStored = await cluster.api.create(kind.resource(version), withText(length)).then(
      () => true,
      () => false,
    );
    if (isStored) {
      fits = length;
      await cluster.api.delete(kind.resource(version), { name: "largest", namespace: "default" });
    } else {
      tooLong = length;
    }
  }
  await cluster.api.create(kind.resource(version), withText(fits));
}
