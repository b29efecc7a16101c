import { ACCEPT_METADATA, ACCEPT_METADATA_LIST, LEASES, collectionPath } from "../../../../src/kube/resources.ts";
import type { Answer, Json, LineRequest } from "../line.ts";
import { createObjects, createSubject } from "../prepare.ts";
import { apply, get, merge, post, remove, stateOf } from "../script-requests.ts";
import type { Scenario } from "../script-scenario.ts";

const START_TIME = /^process_start_time_seconds (\S+)$/m;

/** What another process on the same address does not know any more. */
export const restarts: Scenario = {
  name: "an API server that is restarted",
  alone: true,
  async play(play) {
    const nests = await createSubject(play, "nest", { storage: "v1" });
    await createObjects(play, nests, "v1", ["a", "b", "c"]);
    const on = { server: 1 };
    const page = (token?: string): LineRequest =>
      get(nests.all("v1"), { ...on, accept: ACCEPT_METADATA_LIST, query: { limit: 1, continue: token } });
    await play.wait("the other API server serves the CRD", page(), ({ status }) => status === 200);
    const names = {
      pick: ({ items, ...list }: Json) => ({ ...list, items: items.map(({ metadata }: Json) => metadata.name) }),
    };
    const first = await play.line("a page before", page(), names);
    const object = stateOf(await play.line("an object before", get(nests.at("v1", "a"), on)));
    const metrics = get("/metrics", { ...on, accept: "text/plain" });
    const startOf = async (): Promise<string | undefined> =>
      START_TIME.exec((await play.world.send(metrics)).body)?.[1];
    const before = await startOf();
    const query = {
      allowWatchBookmarks: true,
      timeoutSeconds: 290,
      resourceVersion: first.body.metadata.resourceVersion,
    };
    const open = await play.watch("a watch that is open", get(nests.all("v1"), { ...on, query }));

    await play.world.restart(1);
    await play.event("it ends", open);
    play.fact("the metrics show another start", (await startOf()) !== before);
    const isServed = ({ status }: Answer): boolean => status === 200;
    await play.until("the CRD is served", get("/apis/example.com/v1", on), isServed, {
      pick: ({ kind }) => kind as unknown,
    });
    await play.wait("and its objects", page(), isServed);
    await play.line("the page goes on, in the state from before", page(first.body.metadata.continue), names);
    const from = (resourceVersion: string): LineRequest =>
      get(nests.all("v1"), { ...on, query: { ...query, resourceVersion } });
    const old = await play.watch(
      "a watch from the resourceVersion of an object, older than the watch cache",
      from(object.resourceVersion),
    );
    await play.event("it is refused, as too old", old);
    const listed = await play.line("a list", get(nests.all("v1"), on), names);
    const fresh = await play.watch("a watch from the list", from(listed.body.metadata.resourceVersion));
    await play.line("a write through the other one", merge(nests.at("v1", "b"), { spec: { size: 2 } }));
    await play.event("is told", fresh);
    for (const watch of [old, fresh]) watch.stop();
    const leases = get(collectionPath(LEASES, "kube-system"), {
      ...on,
      query: { labelSelector: "apiserver.kubernetes.io/identity=kube-apiserver" },
    });
    await play.line("it has the Lease that it had", leases, { pick: ({ items }) => items.length as unknown });
  },
};

const CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses";

/** Runs last: from then on one of the API servers is of the other release. */
export const otherRelease: Scenario = {
  name: "an API server of another release",
  alone: true,
  async play(play) {
    const on = { server: 1 };
    const entryOf = ({ resources }: Json): unknown => {
      const found = resources.find(({ name }: Json) => name === "volumeattributesclasses");
      return { kind: found?.kind, storageVersionHash: found?.storageVersionHash };
    };
    const [v1, v1beta1] = ["/apis/storage.k8s.io/v1", "/apis/storage.k8s.io/v1beta1"];
    await play.line("the hash before", get(v1, on), { pick: entryOf });
    // An admission plugin adds a finalizer that the model does not have.
    const facts = {
      pick: ({ apiVersion, metadata: { name, resourceVersion, uid } }: Json) => ({
        apiVersion,
        metadata: { name, resourceVersion, uid },
      }),
    };
    const body = {
      apiVersion: "storage.k8s.io/v1",
      kind: "VolumeAttributesClass",
      metadata: { name: "gold" },
      driverName: "example.com",
      parameters: { iops: "1" },
    };
    const created = await play.line("create an object", post(CLASSES, body), facts);
    await play.world.restart(1, "1.33");
    await play.line("v1 of it is not served", get(CLASSES, on));
    await play.line("v1beta1 and its hash", get(v1beta1, on), { pick: entryOf });
    await play.line("the other API server shows the hash that it did", get(v1), { pick: entryOf });
    const old = CLASSES.replace("v1", "v1beta1");
    await play.line("the object in v1beta1", get(`${old}/gold`, on), facts);
    const identity = { kind: "VolumeAttributesClass", metadata: { name: "gold", ...stateOf(created) } };
    const older = {
      ...apply(`${old}/gold`, { ...identity, apiVersion: "storage.k8s.io/v1beta1" }),
      accept: ACCEPT_METADATA,
      ...on,
    };
    const rewritten = await play.line("a no-op write stores it in that version", older, facts);
    const newer = {
      kind: "VolumeAttributesClass",
      metadata: { name: "gold", ...stateOf(rewritten) },
      apiVersion: "storage.k8s.io/v1",
    };
    await play.line(
      "a no-op write through the other one stores it in v1 again",
      { ...apply(`${CLASSES}/gold`, newer), accept: ACCEPT_METADATA },
      facts,
    );
  },
};

/** What is off by default, and ksvm looks at where it is on. */
export const optionalApis: Scenario = {
  name: "StorageVersions and the in-tree migrator",
  alone: true,
  async play(play) {
    const on = { server: 1 };
    await play.world.restart(1, "with StorageVersions and the in-tree migrator");
    const groups = ["internal.apiserver.k8s.io", "storagemigration.k8s.io"];
    await play.line("/apis lists their groups", get("/apis", on), {
      pick: (body) => groups.map((wanted) => body.groups.find(({ name }: Json) => name === wanted)),
    });
    const entries = ({ resources }: Json): unknown =>
      resources.map(({ kind, name, namespaced, storageVersionHash, verbs }: Json) => ({
        kind,
        name,
        namespaced,
        storageVersionHash,
        verbs,
      }));
    await play.line("StorageVersions", get("/apis/internal.apiserver.k8s.io/v1alpha1", on), { pick: entries });
    await play.line("the in-tree migrations", get("/apis/storagemigration.k8s.io/v1beta1", on), { pick: entries });
    const withoutStatus = ({ metadata, spec }: Json): unknown => ({ metadata, spec });
    const absent = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/example.com.nothings";
    await play.line("no StorageVersion of a custom resource", get(absent, on));
    const all = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    await play.line("no in-tree migration", get(all, { ...on, query: { limit: 100 } }));
    const migration = {
      apiVersion: "storagemigration.k8s.io/v1beta1",
      kind: "StorageVersionMigration",
      metadata: { name: "cups" },
      spec: { resource: { group: "example.com", resource: "cups" } },
    };
    const created = await play.line("create one", { ...post(all, migration), ...on }, { pick: withoutStatus });
    const condition = {
      type: "Running",
      status: "True",
      reason: "Tested",
      message: "",
      lastTransitionTime: "2026-01-02T03:04:05Z",
    };
    const status = { metadata: stateOf(created), status: { conditions: [condition] } };
    await play.line("its status", { ...merge(`${all}/cups/status`, status), ...on }, { pick: withoutStatus });
    await play.line("the list of it", get(all, { ...on, query: { limit: 100 } }), {
      pick: ({ items, ...list }) => ({ ...list, count: items.length }),
    });
    await play.line("delete it", { ...remove(`${all}/cups`), ...on });
  },
};
