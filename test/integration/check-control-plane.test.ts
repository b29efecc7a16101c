import t from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { MIGRATION_API_VERSION, resourceNameOf } from "../../src/api/migration.ts";
import type { NewObject } from "../../src/kube/client.ts";
import { MERGE_PATCH, type Resource, STORAGE_STATES } from "../../src/kube/resources.ts";
import type { CountedEntry } from "../../src/plan/inventory.ts";
import type { ReleaseEntry } from "../../src/plan/release/check-release.ts";
import { KNOWN_RELEASES } from "../../src/resources/known-versions.ts";
import type { ReleaseCheck } from "../../src/plan/release/release-facts.ts";
import type { ServedResource } from "../../src/resources/migratable.ts";
import { discoverResources } from "../../src/resources/served-resource.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { readVersions } from "../control-plane/versions.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { installCrds } from "./install-crds.ts";

const RUNNING = readVersions().kubernetes.split(".").slice(0, 2).join(".").slice(1);
const HPAS: Resource = { group: "autoscaling", version: "v2", resource: "horizontalpodautoscalers" };
const HPA: NewObject = {
  apiVersion: "autoscaling/v2",
  kind: "HorizontalPodAutoscaler",
  metadata: { name: "old", namespace: "default" },
  spec: { maxReplicas: 3, scaleTargetRef: { kind: "Deployment", name: "a", apiVersion: "apps/v1" } },
};
const VOLUME_ATTRIBUTES: NewObject = {
  apiVersion: "storage.k8s.io/v1",
  kind: "VolumeAttributesClass",
  metadata: { name: "gold" },
  driverName: "driver.example.com",
  parameters: { a: "b" },
};
const FLOW_SCHEMA = { apiVersion: "flowcontrol.apiserver.k8s.io/v1beta1", kind: "FlowSchema" };

const cluster = await Cluster.start(t, { users: [{ name: "reader" }] });
const { api, controlPlane } = cluster;
const isBuiltIn = ({ group }: ServedResource): boolean => group !== "example.com" && group !== "migration.k8s.io";

async function check(release: string): Promise<{ readonly code: number | null; readonly check: ReleaseCheck }> {
  const { code, stderr, stdout } = await cluster.ksvm(["check", "--control-plane", release, "-o", "json"]);
  if (stdout === "") throw new Error(stderr);
  return { code, check: JSON.parse(stdout) as ReleaseCheck };
}

function entryOf({ items }: ReleaseCheck, name: string): ReleaseEntry | undefined {
  return items.find((entry) => entry.name === name);
}

/** What the trigger writes once everything is migrated, with other hashes for one resource. */
async function writeStates(
  persisted: Readonly<Record<string, readonly string[]>> = {},
  time = new Date(),
): Promise<void> {
  const lastHeartbeatTime = `${time.toISOString().slice(0, 19)}Z`;
  for (const resource of (await discoverResources(api, () => undefined)).filter(isBuiltIn)) {
    const { group, storageVersionHash: hash = "" } = resource;
    const name = resourceNameOf(resource);
    if ((await api.find(STORAGE_STATES, { name })) === undefined) {
      const spec = { resource: { group, resource: resource.resource } };
      await api.create(STORAGE_STATES, {
        apiVersion: MIGRATION_API_VERSION,
        kind: "StorageState",
        metadata: { name },
        spec,
      });
    }
    const status = {
      persistedStorageVersionHashes: persisted[name] ?? [hash],
      currentStorageVersionHash: hash,
      lastHeartbeatTime,
    };
    await api.patch(STORAGE_STATES, { name }, { type: MERGE_PATCH, body: { status } }, { subresource: "status" });
  }
}

async function hashOf(name: string): Promise<string> {
  const found = (await discoverResources(api, () => undefined)).find((one) => resourceNameOf(one) === name);
  return found?.storageVersionHash ?? "";
}

/** Stores an object in another version, as an old API server did. */
async function storeAs(key: string, object: object): Promise<void> {
  await controlPlane.stored.writeKey(key, JSON.stringify(object));
}

await t.test("check --control-plane: without StorageStates nothing is known, and the exit code is 1", async (t) => {
  const { code, check: found } = await check(RUNNING);
  t.equal(code, 1);
  t.ok(found.items.length > 40, "every built-in resource is there");
  t.ok(found.items.every(({ verdict }) => verdict === "unknown"));
  t.match(found.notes[0], /there are no StorageStates/);
});

await t.test("check --control-plane: the table knows every version that a real API server writes", async (t) => {
  await installCrds(cluster);
  await cluster.createStale(new TestKind("custom"), 1);
  await writeStates();
  const { code, check: found } = await check(RUNNING);
  t.same(
    found.items.filter(({ verdict, writes }) => verdict !== "readable" || writes === undefined),
    [],
  );
  t.equal(code, 0);
  t.match(found, { release: RUNNING, running: /^v1\./, crds: 3 }, "CRDs are no part of it");
  t.equal(entryOf(found, new TestKind("custom").name), undefined);
});

await t.test("check --control-plane: what is no longer served is still read, as the API server shows", async (t) => {
  const name = "flowschemas.flowcontrol.apiserver.k8s.io";
  const { apiVersion, kind } = FLOW_SCHEMA;
  const spec = { matchingPrecedence: 9_000, priorityLevelConfiguration: { name: "global-default" } };
  await storeAs("/registry/flowschemas/old", { apiVersion, kind, metadata: { name: "old" }, spec });
  const path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/old";
  t.match(await controlPlane.request(path), { status: 200, body: { spec } }, "it reads what is stored as v1beta1");
  t.equal(
    (await controlPlane.request("/apis/flowcontrol.apiserver.k8s.io/v1beta1")).status,
    404,
    "and does not serve it",
  );
  await writeStates({
    [name]: [storageVersionHashOf("flowcontrol.apiserver.k8s.io", "v1beta1", kind), await hashOf(name)],
  });
  const { code, check: found } = await check(RUNNING);
  t.match(entryOf(found, name), { verdict: "readable", stored: [apiVersion, "flowcontrol.apiserver.k8s.io/v1"] });
  t.equal(code, 0);
});

const skip = unlessAtLeast(36, "the first release that does not read autoscaling/v2beta2");

await t.test(
  "check --control-plane: a version that a release has lost needs a migration before it",
  { skip },
  async (t) => {
    const name = "horizontalpodautoscalers.autoscaling";
    await writeStates({
      [name]: [storageVersionHashOf("autoscaling", "v2beta2", "HorizontalPodAutoscaler"), await hashOf(name)],
    });
    t.match(entryOf((await check("1.36")).check, name), { verdict: "readable", objects: 0 }, "nothing is stored");
    await api.create(HPAS, HPA);
    const { code, check: found } = await check("1.36");
    t.match(entryOf(found, name), { verdict: "needs-migration", objects: 1, steps: [/ksvm migrate/] });
    t.equal(code, 4);
    t.equal((await check("1.35")).code, 0, "negative control: the release before reads it");
    const planned = await cluster.ksvm(["plan", name, "configmaps", "-o", "json"]);
    t.match((JSON.parse(planned.stdout) as { items: readonly CountedEntry[] }).items, [
      { action: "migrate", storageVersion: "v2", storedVersions: ["v2beta2", "v2"], estimate: { requests: 2 } },
      { action: "none", storageVersion: "v1", storedVersions: ["v1"], estimate: undefined },
    ]);
    const key = "/registry/horizontalpodautoscalers/default/old";
    const path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/old";
    t.match((await controlPlane.stored.readKey(key))?.value.toString("latin1"), /autoscaling\/v2\W/);
    t.equal((await controlPlane.request(path)).status, 200);
    await storeAs(key, { ...HPA, apiVersion: "autoscaling/v2beta2" });
    t.match(await controlPlane.request(path), { status: 500, body: { message: /autoscaling\/v2beta2/ } }, "it is lost");
    await api.patch(STORAGE_STATES, { name }, { type: MERGE_PATCH, body: { status: null } }, { subresource: "status" });
    t.match(entryOf((await check("1.36")).check, name), { verdict: "unknown" });
  },
);

await t.test("check --control-plane: what an older release cannot read is lost in a downgrade", { skip }, async (t) => {
  await writeStates();
  const name = "volumeattributesclasses.storage.k8s.io";
  t.match(entryOf((await check("1.33")).check, name), { verdict: "readable", objects: 0, writes: "storage.k8s.io/v1" });
  await api.create({ group: "storage.k8s.io", version: "v1", resource: "volumeattributesclasses" }, VOLUME_ATTRIBUTES);
  const { code, check: found } = await check("1.33");
  t.match(entryOf(found, name), {
    verdict: "data-loss",
    objects: 1,
    steps: [/--emulated-version=1\.33/, /ksvm migrate/, /.*/],
  });
  t.equal(code, 5);
  t.equal((await check("1.34")).code, 0, "negative control: the first release that has v1 reads it");
});

await t.test(
  "check --control-plane: old heartbeats and unlisted releases are unknown, and other words are refused",
  async (t) => {
    await writeStates({}, new Date(Date.now() - 3_600_000));
    const { code, check: found } = await check(RUNNING);
    t.equal(code, 1);
    t.match(found.items[0], { verdict: "unknown", reason: /heartbeat .* too old/ });
    const [oldest = ""] = KNOWN_RELEASES;
    const tooOld = `1.${Number(oldest.slice(2)) - 1}`;
    t.match(await cluster.ksvm(["check", "--control-plane", tooOld]), {
      code: 1,
      stdout: "",
      stderr: /\[ReleaseUnknown\]\n$/,
    });
    t.match(await cluster.ksvm(["check", "--control-plane", "latest"]), {
      code: 2,
      stderr: /a release of Kubernetes such as "1\.35"/,
    });
    t.match(await cluster.ksvm(["check", "--control-plane", "1.35", "-f", "a.yaml"]), { code: 2, stderr: /\[Usage\]/ });
  },
);
