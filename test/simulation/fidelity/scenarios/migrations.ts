import { shippedCrds } from "../../../../src/initializer/shipped-crds.ts";
import { FORCE_ANNOTATION, HASH_ANNOTATION } from "../../../../src/api/names.ts";
import { MIGRATIONS, STORAGE_STATES, collectionPath, objectPath } from "../../../../src/kube/resources.ts";
import { manifestOf } from "../../../../src/migrations/manifest.ts";
import type { Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { HANDLER_LAG_MS } from "../prepare.ts";
import { apply, crdPath, get, isEstablished, merge, metadataOf, post, remove, stateOf } from "../script-requests.ts";

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
      await play.line(
        `apply ${name} again: nothing is written`,
        apply(crdPath(name), crd, { fieldManager: "ksvm-init", force: true }),
        { pick: facts },
      );
      await play.line(`${name} says that its group is approved`, get(crdPath(name)), {
        pick: ({ status }) =>
          status.conditions
            .map(({ reason, status: state, type }: Json) => ({ type, status: state, reason }))
            .toSorted((a: Json, b: Json) => (a.type < b.type ? -1 : 1)),
      });
    }
    const all = collectionPath(MIGRATIONS);
    const states = collectionPath(STORAGE_STATES);
    for (const path of [all, states]) await play.wait(`${path} is served`, get(path), ({ status }) => status === 200);
    await play.world.pause(HANDLER_LAG_MS);

    const resource = { group: "generated", version: "v1", resource: "balls" };
    const labels = { "app.kubernetes.io/managed-by": "ksvm" };
    const manifest = manifestOf(resource, { labels, annotations: { [HASH_ANNOTATION]: "abc" } });
    const created = await play.line("create, with a generated name", post(all, manifest));
    const at = objectPath(MIGRATIONS, { name: metadataOf(created).name });
    await play.line(
      "the resource of a migration never changes",
      merge(at, { spec: { resource: { ...resource, resource: "others" } } }),
      { anyMessage: true },
    );
    await play.line("a migration without a resource", post(all, { ...manifest, spec: {} }), { anyMessage: true });
    const marked = await play.line(
      "an annotation, with uid and resourceVersion",
      merge(at, { metadata: { ...stateOf(created), annotations: { [FORCE_ANNOTATION]: "true" } } }),
    );
    await play.line(
      "an annotation, with a stale resourceVersion",
      merge(at, { metadata: { ...stateOf(created), annotations: { [FORCE_ANNOTATION]: null } } }),
    );
    const status = (state: Json, reason: string): Json => ({
      metadata: state,
      status: {
        startTime: TIME,
        progress: "1/2",
        conditions: [{ type: "Running", status: "True", lastUpdateTime: TIME, reason, message: "some words" }],
      },
    });
    const running = await play.line("the status", merge(`${at}/status`, status(stateOf(marked), "Tested")));
    await play.line("the status again: nothing is written", merge(`${at}/status`, status(stateOf(running), "Tested")));
    await play.line("the status with a stale resourceVersion", merge(`${at}/status`, status(stateOf(marked), "Other")));
    await play.line("a status that is too long", merge(`${at}/status`, { status: { progress: "x".repeat(65) } }), {
      anyMessage: true,
    });
    await play.line(
      "a status of another type",
      merge(`${at}/status`, { status: { counts: { migrated: -1, skipped: 0, failed: 0 } } }),
      { anyMessage: true },
    );
    await play.line("a status through the main resource changes nothing", merge(at, { status: { progress: "2/2" } }));
    await play.line(
      "a field that there is none of is dropped",
      merge(`${at}/status`, { status: { unknown: "field" } }),
    );
    await play.line(
      "the continue token",
      merge(at, { metadata: stateOf(running), spec: { continueToken: "token", suspend: true } }),
    );
    await play.line("the list", get(all, { query: { limit: 500 } }));
    await play.line("delete with another uid", remove(at, { uid: "11111111-2222-3333-4444-555555555555" }));
    await play.line("delete", remove(at, { uid: stateOf(created).uid }));
    await play.line("the status of what is gone", merge(`${at}/status`, status(stateOf(running), "Late")));

    const state = {
      apiVersion: "migration.k8s.io/v1alpha1",
      kind: "StorageState",
      metadata: { name: "balls.example.com", labels },
      spec: { resource: { group: "example.com", resource: "balls" } },
    };
    await play.line(
      "a StorageState whose name is not that of its resource",
      post(states, { ...state, metadata: { name: "other" } }),
      { anyMessage: true },
    );
    const made = await play.line("create a StorageState", post(states, state));
    const own = objectPath(STORAGE_STATES, { name: "balls.example.com" });
    const hashes = (resourceVersion: string, hash: string): Json => ({
      metadata: { resourceVersion },
      status: {
        persistedStorageVersionHashes: ["Unknown", hash],
        currentStorageVersionHash: hash,
        lastHeartbeatTime: TIME,
      },
    });
    const written = await play.line(
      "its status",
      merge(`${own}/status`, hashes(metadataOf(made).resourceVersion, "abc=")),
    );
    await play.line(
      "its status with a stale resourceVersion",
      merge(`${own}/status`, hashes(metadataOf(made).resourceVersion, "def=")),
    );
    await play.line(
      "the same heartbeat: nothing is written",
      merge(`${own}/status`, {
        metadata: { resourceVersion: metadataOf(written).resourceVersion },
        status: { lastHeartbeatTime: TIME },
      }),
    );
    await play.line("delete it", remove(own, { uid: stateOf(made).uid }));
  },
};
