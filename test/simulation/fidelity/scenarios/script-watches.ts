import { ACCEPT_METADATA, CRDS, collectionPath } from "../../../../src/kube/resources.ts";
import type { Json, LineRequest } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { changeStorage, createObjects, createSubject } from "../prepare.ts";
import { get, merge, post, remove, stateOf } from "../script-requests.ts";

function watchOf(path: string, resourceVersion: string, more: LineRequest["query"] = {}): LineRequest {
  return get(path, { query: { allowWatchBookmarks: true, resourceVersion, timeoutSeconds: 290, ...more } });
}

const metadata = (object: Json): unknown => ({
  apiVersion: object.apiVersion,
  kind: object.kind,
  metadata: object.metadata,
});

export const watches: Scenario = {
  name: "watches",
  async play(play) {
    const shape = { storage: "v1alpha1" };
    const birds = await createSubject(play, "bird", shape);
    const all = birds.all("v1");
    const before = (await play.line("the list before", get(all))).body.metadata.resourceVersion;
    await createObjects(play, birds, "v1alpha1", ["a", "b"]);
    const since = await play.watch("watch from before", watchOf(all, before));
    await play.event("a was created", since);
    await play.event("b was created", since);
    const listed = (
      await play.line("the list now", get(all), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const one = await play.watch(
      "watch b alone, from the list",
      watchOf(birds.own("v1"), listed, { fieldSelector: "metadata.name=b" }),
    );
    const alone = await play.watch("watch metadata alone", { ...watchOf(all, listed), accept: ACCEPT_METADATA });
    const now = await play.watch("watch from nowhere: what is there comes first", watchOf(all, ""));
    await play.event("it begins with a", now, { pick: metadata });
    await play.event("then b", now, { pick: metadata });
    await play.event("a bookmark ends what was there", now);
    await play.line("a changes", merge(birds.at("v1", "a"), { spec: { size: 2 } }));
    await play.line("b changes", merge(birds.at("v1", "b"), { metadata: { labels: { x: "y" } } }));
    await play.event("a was modified", since);
    await play.event("b was modified", since);
    await play.event("of b alone: b was modified", one);
    await play.event("as metadata: a was modified", alone);
    await play.line("a no-op write tells nothing", merge(birds.at("v1", "b"), { metadata: { labels: { x: "y" } } }));
    await play.line(
      "a dry-run tells nothing",
      merge(birds.at("v1", "b"), { metadata: { labels: { x: "z" } } }, { dryRun: "All" }),
    );
    await play.line("b is deleted", remove(birds.at("v1", "b")));
    await play.event("b was deleted, at the revision of its deletion", since);
    await play.event("of b alone: it was deleted", one);
    await play.event("as metadata: b was modified", alone);
    await play.event("as metadata: b was deleted", alone);

    const without = { timeoutSeconds: 4, allowWatchBookmarks: undefined };
    const short = await play.watch("a watch that ends soon, without bookmarks", watchOf(all, listed, without));
    await play.event("it goes on from the list: a", short, { pick: metadata });
    await play.event("it goes on from the list: b", short, { pick: metadata });
    await play.event("it goes on from the list: b is deleted", short, { pick: metadata });
    await play.event("it ends", short);
    // As after a restore of etcd from a backup.
    const ahead = watchOf(all, String(Number(listed) + 1_000_000), without);
    const early = await play.watch("a watch from a resourceVersion that is yet to come", ahead);
    await play.line("a changes again", merge(birds.at("v1", "a"), { spec: { size: 3 } }));
    await play.event("it tells nothing, and ends", early);
    for (const watch of [since, one, alone, now, short, early]) watch.stop();

    await play.watch("a watch of a resource that is not there", get("/apis/example.com/v1/nothings"));
    const wrong = get(all, { query: { fieldSelector: "spec.size=1" } });
    await play.watch("a watch by a field that cannot be selected", wrong, { anyMessage: true });
  },
};

export const watchesOfCrds: Scenario = {
  name: "watches of a CRD",
  async play(play) {
    const hills = await createSubject(play, "hill", { storage: "v1alpha1" });
    const byName = { fieldSelector: `metadata.name=${hills.name}` };
    const listed = await play.line("a list by name", get(collectionPath(CRDS), { query: byName }), {
      pick: ({ items, kind, metadata: { resourceVersion } }) => ({
        kind,
        count: items.length,
        metadata: { resourceVersion },
      }),
    });
    const watch = await play.watch(
      "a watch by name from there",
      watchOf(collectionPath(CRDS), listed.body.metadata.resourceVersion, byName),
    );
    const facts = (object: Json): unknown => ({
      metadata: object.metadata,
      storedVersions: object.status.storedVersions,
    });
    await play.line("a label", merge(hills.path, { metadata: { labels: { a: "b" } } }), { pick: facts });
    await play.event("it was modified", watch, { pick: facts });
    await changeStorage(play, hills, { storage: "v1" });
    await play.event("its storage version was changed", watch, { pick: facts });
    watch.stop();
  },
};

/** What a watch sees of a change of the CRD: the API server begins a new watch cache for its objects. */
export const watchesAcrossChanges: Scenario = {
  name: "watches across a change of the CRD",
  async play(play) {
    const ponds = await createSubject(play, "pond", { storage: "v1alpha1" });
    await createObjects(play, ponds, "v1alpha1", ["a", "b"]);
    const first = stateOf(await play.line("a as it is", get(ponds.at("v1", "a"))));
    const listed = (
      await play.line("a list", get(ponds.all("v1")), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const open = await play.watch("a watch that is open", watchOf(ponds.all("v1"), listed));
    await changeStorage(play, ponds, { storage: "v1" });
    await play.event("it ends with the change", open);
    open.stop();
    const old = await play.watch(
      "a watch from an object's resourceVersion, which is older than the new watch cache",
      watchOf(ponds.all("v1"), first.resourceVersion),
    );
    await play.event("it is refused, as too old", old);
    old.stop();
    const again = (
      await play.line("the list after", get(ponds.all("v1")), {
        pick: ({ kind, metadata: { resourceVersion } }) => ({ kind, metadata: { resourceVersion } }),
      })
    ).body.metadata.resourceVersion;
    const fresh = await play.watch("a watch from the list after", watchOf(ponds.all("v1"), again));
    await play.line("create c", post(ponds.own("v1"), ponds.object("v1", "c")), { pick: metadata });
    await play.event("it tells of c", fresh, { pick: metadata });
    fresh.stop();
  },
};
