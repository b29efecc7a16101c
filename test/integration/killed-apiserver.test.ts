import t from "tap";
import type { ApiserverOptions } from "../control-plane/apiserver.ts";
import { encryptionConfig, storedWith } from "../control-plane/encryption.ts";
import { Cluster, eventually } from "./cluster.ts";
import { GROUP, TestKind } from "./crd-fixture.ts";

// Without the StorageVersion API, which is alpha and would show the other version.
const BASE: ApiserverOptions = {
  featureGates: { VolumeAttributesClass: true },
  runtimeConfig: { "storage.k8s.io/v1beta1": true },
};
/** What it stores volumeattributesclasses as differs, v1beta1 and v1, and the key that it encrypts with. */
const OLD = { ...BASE, emulatedVersion: "1.33", encryptionConfig: encryptionConfig(["old", "new"]) };
const NEW = { ...BASE, emulatedVersion: "1.36", encryptionConfig: encryptionConfig(["new", "old"]) };
/** Host names of their own, and so an identity Lease each. */
const HOSTS = [{ hostname: "control-plane-1" }, { hostname: "control-plane-2" }];

const CLASSES = { group: "storage.k8s.io", version: "v1beta1", resource: "volumeattributesclasses" };
const CLASSES_PREFIX = "/registry/volumeattributesclasses/";
const COUNT = 120;
/** Half a minute: long enough to restart an API server twice. */
const SLOWLY = ["--max-qps", "4", "--page-size", "20"];

const cluster = await Cluster.start(t, { ...NEW, apiservers: 2, overrides: HOSTS });
const { controlPlane } = cluster;
const [first, second] = controlPlane.apiservers;
if (first === undefined || second === undefined) {
  throw new Error("two API servers were asked for");
}
const BOTH = ["--apiserver-endpoints", `${first.url},${second.url}`];

function classNamed(name: string) {
  const metadata = { name };
  const spec = { driverName: "d.example.com", parameters: { a: "b" } };
  return { apiVersion: "storage.k8s.io/v1beta1", kind: "VolumeAttributesClass", metadata, ...spec };
}

/** Starts a run and shows what it writes as it goes. */
function start(args: readonly string[]) {
  const seen = { output: "" };
  const onStdout = (text: string): void => {
    seen.output += text;
  };
  return { seen, ended: cluster.migrate(args, { onStdout }) };
}

await t.test(
  "an API server that is killed and runs otherwise for a while, all within one run, makes the run begin again",
  async (t) => {
    const names = Array.from({ length: COUNT }, (_, index) => `class${index}`);
    await cluster.createObjects(CLASSES, names.map(classNamed));
    const kind = new TestKind("killed");
    await cluster.createCrd(kind, { storage: "v1" });
    await cluster.createObjects(kind.resource("v1"), kind.objects(COUNT, "v1"));

    const builtIn = start(["volumeattributesclasses.storage.k8s.io", ...BOTH, ...SLOWLY]);
    const forced = start([kind.name, "--force", ...BOTH, ...SLOWLY]);
    const runs = [builtIn, forced];
    const isUnderWay = ({ seen }: (typeof runs)[number]): boolean => /\d\d\/120/.test(seen.output);
    await eventually(async () => runs.every(isUnderWay), "both runs are under way");
    await controlPlane.restartApiserver(1, { ...OLD, ...HOSTS[1] });
    // Written behind what the runs have listed, and beyond their watermarks.
    for (const [path, body] of [
      ["/apis/storage.k8s.io/v1beta1/volumeattributesclasses", classNamed("aaa-late")],
      [`/apis/${GROUP}/v1/namespaces/default/${kind.plural}`, kind.object("aaa-late", "v1")],
    ] as const) {
      await eventually(
        async () => (await controlPlane.request(path, { method: "POST", body, apiserver: 1 })).status === 201,
        `${path} is served`,
      );
    }
    await controlPlane.restartApiserver(1, { ...NEW, ...HOSTS[1] });
    t.notOk(
      runs.some(({ seen }) => /starting again|migrated in/.test(seen.output)),
      "all of that within one attempt",
    );

    for (const { ended } of runs) {
      const { code, stderr, stdout } = await ended;
      t.equal(code, 0, stderr);
      // Whichever shows it first: when its process started, or its identity Lease.
      t.match(stdout, /starting again: .*(?:an API server restarted|joined|left|over) during the run/);
      t.notMatch(stdout, /resuming/, "nothing of the first attempt is believed");
    }
    const classes = await controlPlane.stored.objectsUnder(CLASSES_PREFIX);
    t.same(new Set(classes.map(({ apiVersion }) => apiVersion)), new Set(["storage.k8s.io/v1"]));
    t.equal(classes.length, COUNT + 1);
    const objects = await controlPlane.stored.objectsUnder(`/registry/${GROUP}/${kind.plural}/`);
    t.same(new Set(objects.map(({ encryptedWith }) => encryptedWith)), new Set([storedWith("new")]));
    t.equal(objects.length, COUNT + 1);
  },
);
