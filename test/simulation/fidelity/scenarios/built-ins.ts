import {
  ACCEPT_METADATA,
  ACCEPT_METADATA_LIST,
  EVENTS,
  LEASES,
  SECRETS,
  collectionPath,
  objectPath,
} from "../../../../src/kube/resources.ts";
import { serverIdHashOf } from "../../../../src/apiservers/encryption-agreement.ts";
import type { Json, LineRequest } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import type { Play } from "../play.ts";
import { createObjects, createSubject } from "../prepare.ts";
import { apply, get, merge, post, stateOf } from "../script-requests.ts";

export const events: Scenario = {
  name: "Events",
  async play(play) {
    const time = "2026-01-02T03:04:05Z";
    const event = {
      apiVersion: "v1",
      kind: "Event",
      metadata: { namespace: "default", generateName: "generated." },
      involvedObject: {
        apiVersion: "migration.k8s.io/v1alpha1",
        kind: "StorageVersionMigration",
        name: "balls",
        uid: "11111111-2222-3333-4444-555555555555",
      },
      type: "Normal",
      reason: "Tested",
      message: "some words",
      source: { component: "ksvm" },
      firstTimestamp: time,
      lastTimestamp: time,
      count: 1,
    };
    const path = collectionPath(EVENTS, "default");
    const facts = ({ kind, message, metadata, reason, type }: Json): unknown => ({
      kind,
      message,
      reason,
      type,
      metadata,
    });
    await play.line("create one with a generated name", post(path, event), { pick: facts, anyStored: true });
  },
};

function rewrite(name: string, state: object, server: number): LineRequest {
  const identity = { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: "default", ...state } };
  return { ...apply(objectPath(SECRETS, { namespace: "default", name }), identity), accept: ACCEPT_METADATA, server };
}

async function createSecret(play: Play, name: string, server: number) {
  const secret = {
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name, namespace: "default", labels: { scenario: "keys" } },
    stringData: { a: "b" },
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
    await play.line("a second time it writes nothing", rewrite("old", stateOf(rewritten), 1));
    await play.line("a dry-run writes nothing", {
      ...rewrite("old", stateOf(rewritten), 0),
      query: { fieldManager: "ksvm-rewrite", dryRun: "All" },
    });
    const list = get(collectionPath(SECRETS, "default"), { server: 1, query: { labelSelector: "scenario=keys" } });
    await play.line("both are listed", list, {
      pick: ({ items, kind }) => ({ kind, names: items.map(({ metadata }: Json) => metadata.name) }),
    });
    await play.line("the API server with the old key writes it with that again", rewrite("old", stateOf(rewritten), 0));
  },
};

export const twoServers: Scenario = {
  name: "two API servers",
  async play(play) {
    const path = collectionPath(SECRETS, "default");
    const secret = (name: string): Json => ({
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name, namespace: "default" },
    });
    const created = await play.line("what one creates", post(path, secret("shared")), {
      pick: ({ metadata }) => metadata as unknown,
    });
    await play.line(
      "the other reads at once",
      get(objectPath(SECRETS, { namespace: "default", name: "shared" }), { server: 1 }),
      { pick: ({ metadata }) => metadata as unknown },
    );
    await play.line(
      "and lists at once",
      get(path, { server: 1, query: { fieldSelector: "metadata.name=shared" }, accept: ACCEPT_METADATA_LIST }),
    );
    await play.line(
      "a write through the other, with what the first answered",
      { ...rewrite("shared", stateOf(created), 1) },
      { anyStored: true },
    );
    const objects = await createSubject(play, "twin", { storage: "v1alpha1" });
    await createObjects(play, objects, "v1alpha1", ["a", "b", "c"]);
    const page = (server: number, token?: string): LineRequest =>
      get(objects.all("v1"), { server, accept: ACCEPT_METADATA_LIST, query: { limit: 1, continue: token } });
    await play.wait("the second one serves the CRD", page(1), ({ status }) => status === 200);
    const names = {
      pick: ({ items, ...list }: Json) => ({ ...list, items: items.map(({ metadata }: Json) => metadata.name) }),
    };
    const first = await play.line("a page of the first one", page(0), names);
    await play.line("the next page, of the second one", page(1, first.body.metadata.continue), names);
    const { resourceVersion } = first.body.metadata;
    const query = { allowWatchBookmarks: true, resourceVersion, timeoutSeconds: 290 };
    const watch = await play.watch(
      "a watch of the second one, from there",
      get(objects.all("v1"), { server: 1, query }),
    );
    await play.line("a write through the first one", merge(objects.at("v1", "b"), { spec: { size: 2 } }));
    await play.event("is told by the second one", watch);
    watch.stop();
    await play.line(
      "a conflict, whichever is asked",
      rewrite("shared", { ...stateOf(created), uid: "11111111-2222-3333-4444-555555555555" }, 0),
    );
  },
};
