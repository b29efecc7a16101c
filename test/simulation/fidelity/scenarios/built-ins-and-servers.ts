import { FORCE_ANNOTATION, HASH_ANNOTATION } from "../../../../src/api/names.ts";
import { serverIdHashOf } from "../../../../src/apiservers/encryption-agreement.ts";
import { shippedCrds } from "../../../../src/initializer/shipped-crds.ts";
import {
  ACCEPT_METADATA,
  ACCEPT_METADATA_LIST,
  collectionPath,
  LEASES,
  MIGRATIONS,
  objectPath,
  type Resource,
  SECRETS,
} from "../../../../src/kube/resources.ts";
import { manifestOf } from "../../../../src/migrations/manifest.ts";
import type { Play, Scenario } from "../play.ts";
import {
  apply,
  crdPath,
  createObjects,
  createSubject,
  get,
  HANDLER_LAG_MS,
  isEstablished,
  merge,
  metadataOf,
  post,
  remove,
  stateOf,
} from "../requests.ts";
import type { Answer, Json, LineRequest } from "../world.ts";

function rewrite(name: string, state: object, server: number): LineRequest {
  const identity = { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: "default", ...state } };
  return { ...apply(objectPath(SECRETS, { namespace: "default", name }), identity), accept: ACCEPT_METADATA, server };
}

async function createSecret(play: Play, name: string, server: number) {
  const secret = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name, namespace: "default", labels: { scenario: "keys" } },
    data: { a: "Yg==" },
  };
  return play.line(
    `create ${name} through API server ${server}`,
    { ...post(collectionPath(SECRETS, "default"), secret), server },
    { pick: ({ metadata, type }) => ({ metadata, type }) },
  );
}

const CONFIG_INFO = /^apiserver_encryption_config_controller_last_config_info\{([^}]*)\} (\S+)$/gm;
const RELOADS = /^apiserver_encryption_config_controller_automatic_reloads_total\{/m;

/** Whether an API server says on `/metrics` which configuration it has, under its own name. @returns the digest of that */
async function showConfig(play: Play, server: number): Promise<string> {
  const query = { labelSelector: `kubernetes.io/hostname=apiserver-${server}` };
  const leases = get(collectionPath(LEASES, "kube-system"), { query });
  const found = await play.wait("its Lease is there", leases, ({ body }) => body.items.length > 0);
  const metrics = String((await play.world.send(get("/metrics", { server, accept: "text/plain" }))).body);
  const shown = [...metrics.matchAll(CONFIG_INFO)];
  const [, labels = "", value] = shown[0] ?? [];
  const [, hash = ""] = /,hash="(sha256:[0-9a-f]{64})"$/.exec(labels) ?? [];
  play.fact(`API server ${server} shows its encryption configuration`, {
    lines: shown.length,
    value,
    hasHash: hash !== "",
    isNamedByLease: labels.startsWith(`apiserver_id_hash="${serverIdHashOf(found.body.items[0].metadata.name)}",`),
    hasReloads: RELOADS.test(metrics),
  });
  return hash;
}

/** The first API server writes with the old key and knows the new one; the second one writes with the new key. */
export const encryption: Scenario = {
  name: "a key rotation",
  async play(play) {
    const [first, second] = [await showConfig(play, 0), await showConfig(play, 1)];
    play.fact("it is another one than that of the other API server", first !== second);
    const created = await createSecret(play, "old", 0);
    await createSecret(play, "new", 1);
    await play.line("the API server with the old key writes nothing", rewrite("old", stateOf(created), 0));
    const rewritten = await play.line(
      "the API server with the new key writes it with that",
      rewrite("old", stateOf(created), 1),
    );
    await play.line("the API server with the old key writes it with that again", rewrite("old", stateOf(rewritten), 0));
  },
};

const CONFIG_MAPS: Resource = { group: "", version: "v1", resource: "configmaps" };
const NAMESPACE = "default";

/** The hash and the verbs of a built-in resource. */
function entryOf(wanted: string): (body: Json) => unknown {
  return ({ groupVersion, kind, resources }) => {
    const {
      kind: itsKind,
      namespaced,
      storageVersionHash,
      verbs,
    } = resources.find(({ name }: Json) => name === wanted);
    return { kind, groupVersion, itsKind, namespaced, storageVersionHash, verbs };
  };
}

const names = ({ items, ...list }: Json): unknown => ({
  ...list,
  items: items.map(({ metadata }: Json) => metadata.name),
});

export const builtIns: Scenario = {
  name: "built-in resources",
  async play(play) {
    for (const [path, name] of [
      ["/api/v1", "secrets"],
      ["/api/v1", "configmaps"],
      ["/apis/apps/v1", "deployments"],
      ["/apis/storage.k8s.io/v1", "volumeattributesclasses"],
    ] as const) {
      await play.line(`${path} lists ${name}`, get(path), { pick: entryOf(name) });
    }
    await play.line("a list of Deployments", get("/apis/apps/v1/deployments", { query: { limit: 500 } }));
    const own = collectionPath(CONFIG_MAPS, NAMESPACE);
    const at = (name: string): string => objectPath(CONFIG_MAPS, { namespace: NAMESPACE, name });
    const configMap = (name: string): Json => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name, namespace: NAMESPACE, labels: { of: "script" } },
      data: { a: "b" },
    });
    const created = await play.line("create a ConfigMap", post(own, configMap("one")));
    for (const name of ["two", "three"]) await play.line(`create ${name}`, post(own, configMap(name)));
    const identity = (name: string, state: object): Json => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name, namespace: NAMESPACE, ...state },
    });
    const noOp = (state: object): LineRequest => ({
      ...apply(at("one"), identity("one", state)),
      accept: ACCEPT_METADATA,
    });
    await play.line("a no-op apply of it writes nothing", noOp(stateOf(created)));
    const changed = await play.line("a change", merge(at("one"), { data: { a: "c" } }));
    await play.line("an apply of one that is gone, with a uid", {
      ...apply(at("gone"), identity("gone", { uid: stateOf(created).uid })),
    });
    const page = (token?: string) =>
      get(own, { accept: ACCEPT_METADATA_LIST, query: { limit: 2, labelSelector: "of=script", continue: token } });
    const first = await play.line("a page of metadata", page(), { pick: names });
    await play.line("the next page", page(first.body.metadata.continue), { pick: names });
    await play.line("delete", remove(at("one"), stateOf(changed)));
    await play.line("read what is gone", get(at("one")));
  },
};

const TIME = "2026-01-02T03:04:05Z";

export const migrations: Scenario = {
  name: "the CRDs of ksvm",
  async play(play) {
    for (const crd of shippedCrds()) {
      const { name } = crd.metadata;
      const facts = ({
        metadata: { annotations, generation, name: itsName, labels },
        status: { storedVersions },
      }: Json): unknown => ({ annotations, generation, name: itsName, labels, storedVersions });
      await play.line(`apply ${name}`, apply(crdPath(name), crd, { fieldManager: "ksvm-init", force: true }), {
        pick: facts,
      });
      await play.wait(`${name} is established`, get(crdPath(name)), isEstablished);
    }
    const all = collectionPath(MIGRATIONS);
    await play.wait("migrations are served", get(all), ({ status }) => status === 200);
    await play.world.pause(HANDLER_LAG_MS);

    const resource = { group: "generated", version: "v1", resource: "balls" };
    const labels = { "app.kubernetes.io/managed-by": "ksvm" };
    const manifest = manifestOf(resource, { labels, annotations: { [HASH_ANNOTATION]: "abc" } });
    const created = await play.line("create, with a generated name", post(all, manifest));
    const at = objectPath(MIGRATIONS, { name: metadataOf(created).name });
    const marked = await play.line(
      "an annotation, with uid and resourceVersion",
      merge(at, { metadata: { ...stateOf(created), annotations: { [FORCE_ANNOTATION]: "true" } } }),
    );
    const status = (state: Json, reason: string): Json => ({
      metadata: state,
      status: {
        startTime: TIME,
        progress: "1/2",
        conditions: [{ type: "Running", status: "True", lastUpdateTime: TIME, reason, message: "some words" }],
      },
    });
    await play.line("the status", merge(`${at}/status`, status(stateOf(marked), "Tested")));
    await play.line("the status with a stale resourceVersion", merge(`${at}/status`, status(stateOf(marked), "Other")));
    await play.line("the list", get(all, { query: { limit: 500 } }));
    await play.line("delete", remove(at, { uid: stateOf(created).uid }));
  },
};

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
  },
};
