import tap from "tap";
import { webhookConfigurationOf } from "../../../src/webhook/webhook-configuration.ts";
import { freezePolicyOf } from "../../../src/freeze/freeze-policy.ts";
import { MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import type { ModelObject } from "./model-object.ts";
import { RELEASE_1_33 } from "./resource-table.ts";
import {
  crd,
  CRDS,
  GROUP,
  MERGE,
  names,
  send,
  setStorage,
  setUp,
  SmallCluster,
  type Status,
  widget,
} from "./small-cluster.ts";

const WIDGETS = `${GROUP}/v1/namespaces/default/widgets`;
const REGISTRATION = "/apis/admissionregistration.k8s.io/v1";
function classes(version: string): string {
  return `/apis/storage.k8s.io/${version}/volumeattributesclasses`;
}

const FROZEN = { metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } };
const THIS_CRD = `${CRDS}/widgets.example.com`;

await tap.test("a watch cache that lags serves an older state, and its watches wait", async (t) => {
  const { server } = await setUp();
  const lines: string[] = [];
  const { answer } = await send(server, "GET", `${GROUP}/v1/widgets?watch=true&resourceVersion=0`);
  if (typeof answer.body === "function") answer.body({ event: (line) => lines.push(line), end: () => undefined });
  server.pauseCache();
  await send(server, "POST", WIDGETS, { body: widget("b") });
  t.same(names(await send(server, "GET", `${GROUP}/v1/widgets?resourceVersion=0`)), ["a"]);
  t.same(names(await send(server, "GET", `${GROUP}/v1/widgets`)), ["a", "b"], "a consistent list is current");
  t.equal((await send(server, "GET", `${WIDGETS}/b?resourceVersion=0`)).status, 404);
  t.equal((await send(server, "GET", `${WIDGETS}/b`)).status, 200);
  t.equal(lines.length, 1);
  server.resumeCache();
  t.equal(lines.length, 2);
  t.same(names(await send(server, "GET", `${GROUP}/v1/widgets?resourceVersion=0`)), ["a", "b"]);
});

await tap.test("after a restore, etcd is read as it is and the watch cache as it was until the restart", async (t) => {
  const { cluster, server } = await setUp();
  const snapshot = cluster.etcd.snapshot();
  await send(server, "POST", WIDGETS, { body: widget("b") });
  cluster.etcd.restore(snapshot);
  t.equal((await send(server, "GET", `${WIDGETS}/b`)).status, 404);
  t.equal((await send(server, "GET", `${WIDGETS}/b?resourceVersion=0`)).status, 200);
  server.restart();
  t.equal((await send(server, "GET", `${WIDGETS}/b?resourceVersion=0`)).status, 404);
});

await tap.test("a restarted API server refuses watches from before its start, and is another process", async (t) => {
  const { cluster, server } = await setUp();
  const metrics = async (): Promise<string> => String((await send(server, "GET", "/metrics")).body);
  const before = await metrics();
  cluster.now += 5_000;
  server.restart();
  t.not(await metrics(), before);
  const lines: string[] = [];
  const { answer } = await send(server, "GET", `${GROUP}/v1/widgets?watch=true&resourceVersion=2`);
  if (typeof answer.body === "function") answer.body({ event: (line) => lines.push(line), end: () => undefined });
  t.match(lines, [/"code":410/]);
});

await tap.test("a policy and a webhook are in force once an API server has followed them", async (t) => {
  const { cluster, server } = await setUp();
  server.isPrompt = false;
  const { binding, policy } = freezePolicyOf("widgets.example.com");
  await send(server, "POST", `${REGISTRATION}/validatingadmissionpolicies`, { body: policy });
  await send(server, "POST", `${REGISTRATION}/validatingadmissionpolicybindings`, { body: binding });
  await send(server, "PATCH", THIS_CRD, { body: FROZEN, "content-type": MERGE });
  const flip = async (storage: "v1" | "v2"): Promise<{ status: number; body: Status }> =>
    send(server, "PATCH", `${THIS_CRD}?dryRun=All`, {
      body: { spec: (crd(storage) as ModelObject)["spec"] },
      "content-type": MERGE,
    });
  t.equal((await flip("v2")).status, 200, "not followed yet");
  server.followAdmission();
  const prefix =
    'customresourcedefinitions.apiextensions.k8s.io "widgets.example.com" is forbidden: ValidatingAdmissionPolicy ' +
    "'ksvm-freeze.widgets.example.com' with binding 'ksvm-freeze.widgets.example.com' denied request: StorageVersionFrozen: ";
  const denied = await flip("v2");
  t.equal(denied.status, 403);
  t.ok(denied.body.message.startsWith(prefix), denied.body.message);

  const body = webhookConfigurationOf({ clientConfig: { url: "https://webhook.test/validate" } });
  await send(server, "DELETE", `${REGISTRATION}/validatingadmissionpolicybindings/ksvm-freeze.widgets.example.com`);
  await send(server, "POST", `${REGISTRATION}/validatingwebhookconfigurations`, { body });
  server.followAdmission();
  const calls: string[] = [];
  cluster.webhook = (url) => {
    calls.push(url);
    return { error: "context deadline exceeded" };
  };
  t.match(await flip("v2"), {
    status: 500,
    body: {
      reason: "InternalError",
      message:
        'Internal error occurred: failed calling webhook "crd.kube-storage-version-migrator.io": failed to call webhook: ' +
        'Post "https://webhook.test/validate?timeout=5s": context deadline exceeded',
    },
  });
  const label = { metadata: { labels: { a: "b" } } };
  t.equal((await send(server, "PATCH", THIS_CRD, { body: label, "content-type": MERGE })).status, 200);
  t.equal(calls.length, 1, "its matchConditions let nothing else reach it");
});

await tap.test("a write that lost against another one is made again, and refused with a resourceVersion", async (t) => {
  for (const hasVersion of [false, true]) {
    const { cluster, server } = await setUp();
    const { body } = await send(server, "GET", `${WIDGETS}/a`);
    const { resourceVersion } = (body as ModelObject).metadata;
    const { promise, resolve } = Promise.withResolvers<void>();
    cluster.held = (point) => (point === "admitted" ? promise : undefined);
    const metadata = { labels: { late: "x" }, ...(hasVersion ? { resourceVersion } : {}) };
    const late = send(server, "PATCH", `${WIDGETS}/a`, { body: { metadata }, "content-type": MERGE });
    await new Promise(setImmediate);
    cluster.held = () => undefined;
    await send(server, "PATCH", `${WIDGETS}/a`, { body: { spec: { size: 7 } }, "content-type": MERGE });
    resolve();
    const { status } = await late;
    t.equal(status, hasVersion ? 409 : 200);
    const now = (await send(server, "GET", `${WIDGETS}/a`)).body as ModelObject;
    t.same([now["spec"], now.metadata.labels], [{ size: 7 }, { app: "a", ...(hasVersion ? {} : { late: "x" }) }]);
  }
});

await tap.test("what a user may not do is refused in the words of the authorizer, and a review says it", async (t) => {
  const { server } = await setUp();
  server.denied = [
    { user: "bob", verb: "list", resource: "widgets" },
    { user: "bob", path: "/metrics" },
  ];
  t.match(await send(server, "GET", `${GROUP}/v1/widgets`, { user: "bob" }), {
    status: 403,
    body: {
      reason: "Forbidden",
      message:
        'widgets.example.com is forbidden: User "bob" cannot list resource "widgets" in API group "example.com" at the cluster scope',
    },
  });
  t.match(await send(server, "GET", "/metrics", { user: "bob" }), {
    status: 403,
    body: { message: 'forbidden: User "bob" cannot get path "/metrics"' },
  });
  const resourceAttributes = { verb: "list", group: "example.com", resource: "widgets" };
  const review = {
    apiVersion: "authorization.k8s.io/v1",
    kind: "SelfSubjectAccessReview",
    spec: { resourceAttributes },
  };
  const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  for (const [user, allowed] of [
    ["bob", false],
    ["eve", true],
  ] as const) {
    t.match(await send(server, "POST", path, { body: review, user }), { status: 201, body: { status: { allowed } } });
  }
});

await tap.test("API servers of two releases store one built-in resource in two versions", async (t) => {
  const { cluster, server } = await setUp();
  const old = cluster.server({ release: RELEASE_1_33 });
  const body = { apiVersion: "storage.k8s.io/v1beta1", kind: "VolumeAttributesClass", metadata: { name: "gold" } };
  await send(old, "POST", classes("v1beta1"), { body });
  const stored = (): unknown => cluster.etcd.get("/registry/volumeattributesclasses/gold")?.object.apiVersion;
  t.equal(stored(), "storage.k8s.io/v1beta1");
  t.equal((await send(old, "GET", classes("v1"))).status, 404);
  const hash = async (of: typeof server): Promise<string> => {
    const { body: listed } = await send(of, "GET", "/apis/storage.k8s.io/v1beta1");
    return (listed as { resources: { storageVersionHash: string }[] }).resources[0]?.storageVersionHash ?? "";
  };
  t.not(await hash(old), await hash(server));
  await send(server, "PATCH", `${classes("v1")}/gold`, { body: {}, "content-type": MERGE });
  t.equal(stored(), "storage.k8s.io/v1");
});

await tap.test("discovery shows no hash of a storage version that is not served", async (t) => {
  const { server } = await setUp();
  const { spec } = crd("v2") as { spec: { versions: object[] } };
  const versions = spec.versions.map((one) =>
    "storage" in one && one.storage === true ? { ...one, served: false } : one,
  );
  await send(server, "PATCH", THIS_CRD, { body: { spec: { versions } }, "content-type": MERGE });
  const { body } = await send(server, "GET", `${GROUP}/v1`);
  const [listed] = (body as { resources: { name: string }[] }).resources;
  t.equal(listed?.name, "widgets");
  t.notOk("storageVersionHash" in (listed ?? {}));
});

await tap.test("a CRD that is deleted takes its objects with it, and a new one begins with another uid", async (t) => {
  const { cluster, server } = await setUp();
  const uid = async (): Promise<unknown> => ((await send(server, "GET", THIS_CRD)).body as ModelObject).metadata?.uid;
  const before = await uid();
  t.equal((await send(server, "DELETE", THIS_CRD)).status, 200);
  t.same([await uid(), cluster.etcd.range("/registry/example.com/").length], [undefined, 0]);
  t.equal((await send(server, "GET", WIDGETS)).status, 404);
  await send(server, "POST", CRDS, { body: crd("v2") });
  t.not(await uid(), before);
  await setStorage(server, "v1");
  t.same(names(await send(server, "GET", WIDGETS)), []);
});

await tap.test("an identity Lease outlives its server, is renewed by it, and names the host", async (t) => {
  const cluster = new SmallCluster();
  const server = cluster.server();
  server.renewLease();
  cluster.now += 10_000;
  server.renewLease();
  server.stop();
  const other = cluster.server();
  const { body } = await send(other, "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
  t.match((body as { items: ModelObject[] }).items, [
    {
      metadata: {
        labels: { "apiserver.kubernetes.io/identity": "kube-apiserver", "kubernetes.io/hostname": "host-0" },
      },
      spec: { leaseDurationSeconds: 3_600, renewTime: "2026-01-01T00:00:10.000000Z" },
    },
  ]);
});
