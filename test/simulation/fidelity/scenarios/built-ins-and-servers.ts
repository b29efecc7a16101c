import { createHash } from "node:crypto";
import { FORCE_ANNOTATION, HASH_ANNOTATION } from "../../../../src/api/names.ts";
import { shippedCrds } from "../../../../src/initializer/shipped-crds.ts";
import {
  ACCEPT_METADATA,
  collectionPath,
  LEASES,
  MIGRATIONS,
  objectPath,
  type Resource,
  SECRETS,
} from "../../../api-client.ts";
import { manifestOf } from "../../../../src/migrations/manifest.ts";
import type { Play, Scenario } from "../play.ts";
import {
  apply,
  CRD_COLLECTION,
  crdPath,
  get,
  HANDLER_LAG_MS,
  isEstablished,
  merge,
  metadataOf,
  post,
  remove,
  stateOf,
} from "../requests.ts";
import type { Json, LineRequest } from "../world.ts";

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
  const identity: string = found.body.items[0].metadata.name;
  const idHash = createHash("sha256").update(identity).digest("hex");
  play.fact(`API server ${server} shows its encryption configuration`, {
    lines: shown.length,
    value,
    hasHash: hash !== "",
    isNamedByLease: labels.startsWith(`apiserver_id_hash="sha256:${idHash}",`),
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
    const identity = (name: string, state: object = {}): Json => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name, namespace: NAMESPACE, ...state },
    });
    const created = await play.line("create a ConfigMap", post(own, { ...identity("one"), data: { a: "b" } }));
    await play.line("a no-op apply of it writes nothing", {
      ...apply(at("one"), identity("one", stateOf(created))),
      accept: ACCEPT_METADATA,
    });
    const changed = await play.line("a change", merge(at("one"), { data: { a: "c" } }));
    await play.line(
      "an apply of one that is gone, with a uid",
      apply(at("gone"), identity("gone", { uid: stateOf(created).uid })),
    );
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
      await play.line(`create ${name}`, post(CRD_COLLECTION, crd, { fieldManager: "ksvm-init" }), {
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
