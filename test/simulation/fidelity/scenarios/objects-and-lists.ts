import { JSON_PATCH, MERGE_PATCH, METADATA, METADATA_LIST } from "../../../../src/kube/objects.ts";
import type { Play, Scenario } from "../play.ts";
import {
  apply,
  changeStorage,
  createObjects,
  createSubject,
  get,
  jsonPatch,
  merge,
  post,
  remove,
  served,
  stateOf,
  type Subject,
} from "../requests.ts";
import type { Json, LineRequest } from "../world.ts";

/** The no-op write of ksvm, see `send` of src/migrator/rewrite.ts. */
function noOp(
  at: { readonly subject: Subject; readonly version: string },
  name: string,
  state: object,
  more: Partial<LineRequest> = {},
): LineRequest {
  const { subject, version } = at;
  const body = subject.identity(version, { name, namespace: "default", ...state });
  const { query, ...rest } = more;
  return { ...apply(subject.at(version, name), body, query), accept: METADATA, ...rest };
}

/** Longer than the times of managedFields can tell. */
const SECOND_MS = 1_100;

const FOREIGN_UID = "11111111-2222-3333-4444-555555555555";

async function stateNow(play: Play, subject: Subject, name: string): Promise<{ uid: string; resourceVersion: string }> {
  return stateOf(await play.line(`${name} as it is`, get(subject.at("v1", name))));
}

export const noOpWrites: Scenario = {
  name: "no-op writes",
  async play(play) {
    const rocks = await createSubject(play, "rock", { storage: "v1alpha1" });
    const v1 = { subject: rocks, version: "v1" };
    const names = ["applied", "merged", "patched", "dry"];
    await createObjects(play, rocks, "v1alpha1", names);
    const applied = await stateNow(play, rocks, "applied");
    await play.line("an apply of what is stored in the storage version writes nothing", noOp(v1, "applied", applied));
    await changeStorage(play, rocks, { storage: "v1" });
    await play.line("an object is read in another version, and stays as it is stored", get(rocks.at("v1", "applied")));

    await play.line(
      "a dry-run of the apply stores nothing",
      noOp(v1, "dry", await stateNow(play, rocks, "dry"), { query: { dryRun: "All" } }),
    );
    const after = await play.line("the apply stores it in the new version", noOp(v1, "applied", applied));
    await play.line("the apply with the resourceVersion from before is a conflict", noOp(v1, "applied", applied));
    await play.line("a second apply writes nothing", noOp(v1, "applied", stateOf(after)));
    await play.line("spec, generation and managedFields are as before", get(rocks.at("v1", "applied")));

    const merged = await stateNow(play, rocks, "merged");
    const first = await play.line(
      "a merge patch stores it in the new version",
      noOp(v1, "merged", merged, { contentType: MERGE_PATCH }),
    );
    const foreign = { ...stateOf(first), uid: FOREIGN_UID };
    await play.line(
      "a merge patch with the uid of another object",
      noOp(v1, "merged", foreign, { contentType: MERGE_PATCH }),
    );
    await play.line("an apply with the uid of another object", noOp(v1, "merged", foreign));

    const patched = await stateNow(play, rocks, "patched");
    const operations = [{ op: "add", path: "/metadata/resourceVersion", value: patched.resourceVersion }];
    await play.line("a JSON patch stores it in the new version", {
      ...jsonPatch(rocks.at("v1", "patched"), operations),
      contentType: JSON_PATCH,
    });
    await play.line(
      "an apply of an object that is gone, with its uid",
      noOp(v1, "gone", { uid: FOREIGN_UID, resourceVersion: applied.resourceVersion }),
    );
  },
};

export const edits: Scenario = {
  name: "what users do to objects",
  async play(play) {
    const shape = { storage: "v1", statusSubresource: true };
    const cups = await createSubject(play, "cup", shape);
    const at = cups.at("v1", "a");
    await play.line("create", post(cups.own("v1"), cups.object("v1", "a", { status: { ready: true } })));
    await play.line("a label: the generation stays", merge(at, { metadata: { labels: { a: "b" } } }));
    await play.line("the spec: the generation grows", merge(at, { spec: { size: 2 } }));
    await play.line("the status through the main resource changes nothing", merge(at, { status: { ready: false } }));
    await play.line("the status: the generation stays", merge(`${at}/status`, { status: { ready: true } }));
    await play.line("as it is now", get(at));

    for (const name of ["c", "d"]) await play.line(`create ${name}`, post(cups.own("v1"), cups.object("v1", name)));
    await play.line(
      "an apply by its owner",
      apply(cups.at("v1", "c"), { ...cups.object("v1", "c"), spec: { size: 1 } }, { fieldManager: "owner" }),
    );
    await play.line(
      "an apply by force takes it over",
      apply(
        cups.at("v1", "c"),
        { ...cups.object("v1", "c"), spec: { size: 3 } },
        { fieldManager: "other", force: true },
      ),
    );

    const labeled = { ...cups.identity("v1", { name: "d", namespace: "default", labels: { a: "b" } }) };
    const sized = { ...cups.object("v1", "d"), spec: { size: 1 } };
    await play.line("one manager applies the spec", apply(cups.at("v1", "d"), sized, { fieldManager: "one" }));
    await play.world.pause(SECOND_MS);
    await play.line("another one applies a label", apply(cups.at("v1", "d"), labeled, { fieldManager: "two" }));
    await play.world.pause(SECOND_MS);
    await play.line(
      "the first one applies the same again: nothing is written",
      apply(cups.at("v1", "d"), sized, { fieldManager: "one" }),
    );

    await play.line("managedFields are emptied", merge(at, { metadata: { managedFields: [{}] } }));
    const emptied = await play.line("without managedFields", get(at));
    await play.line(
      "an apply adds an entry for what was there before",
      apply(at, cups.identity("v1", { name: "a", ...stateOf(emptied) })),
    );
  },
};

export const deletions: Scenario = {
  name: "deletions",
  async play(play) {
    const pens = await createSubject(play, "pen", { storage: "v1" });
    const at = pens.at("v1", "a");
    const created = await play.line("create", post(pens.own("v1"), pens.object("v1", "a")));
    const changed = await play.line("change", merge(at, { spec: { size: 2 } }));
    await play.line("delete with a stale resourceVersion", remove(at, stateOf(created)));
    await play.line("delete with uid and resourceVersion", remove(at, stateOf(changed)));
    await play.line("delete it again", remove(at, stateOf(changed)));
    await play.line("create it again: another uid", post(pens.own("v1"), pens.object("v1", "a")));
    await play.line("a write for the one before it", merge(at, { metadata: { uid: stateOf(created).uid } }));
    const held = { metadata: { finalizers: ["example.com/hold"] } };
    await play.line("create one with a finalizer", post(pens.own("v1"), pens.object("v1", "held", held)));
    await play.line("its deletion leaves it there", remove(pens.at("v1", "held")));
    await play.line(
      "the last finalizer goes, and the object with it",
      merge(pens.at("v1", "held"), { metadata: { finalizers: null } }),
    );
    await play.line("it is gone", get(pens.at("v1", "held")));
  },
};

/** A list with the names of its objects alone. */
function names({ items, ...list }: Json): unknown {
  return { ...list, items: items.map(({ metadata }: Json) => metadata.name) };
}

const byName = (name: string) => ({ fieldSelector: `metadata.name=${name}` });

export const lists: Scenario = {
  name: "lists",
  async play(play) {
    const leaves = await createSubject(play, "leaf", { storage: "v1" });
    const all = leaves.all("v1");
    await play.line("an empty list", get(all));
    await createObjects(play, leaves, "v1", ["e", "b", "d", "a", "c"]);
    await play.line("a list is in the order of names", get(all), { pick: names });
    await play.line("a list of whole objects by name", get(leaves.own("v1"), { query: byName("b") }));
    await play.line("a list of metadata by name", get(leaves.own("v1"), { accept: METADATA_LIST, query: byName("b") }));
    await play.line("a label", merge(leaves.at("v1", "c"), { metadata: { labels: { color: "red" } } }));
    await play.line("a list by label", get(all, { query: { labelSelector: "color=red" } }), { pick: names });

    const page = (limit: number, token?: string) =>
      get(all, { accept: METADATA_LIST, query: { limit, continue: token } });
    const options = { pick: names };
    const first = await play.line("the first page", page(2), options);
    await play.line("an object is created behind the page", post(leaves.own("v1"), leaves.object("v1", "cc")), {
      pick: ({ metadata }) => metadata as unknown,
    });
    await play.line("an object is deleted behind the page", remove(leaves.at("v1", "d")));
    const second = await play.line(
      "the second page shows the state of the first",
      page(2, first.body.metadata.continue),
      options,
    );
    await play.line("the third page is the last", page(2, second.body.metadata.continue), options);
    await play.line("a page that is full, with nothing behind it", page(5), options);
  },
};

/** Runs alone: a compaction is for all. */
export const expiredTokens: Scenario = {
  name: "continue tokens that expire",
  alone: true,
  async play(play) {
    const twigs = await createSubject(play, "twig", { storage: "v1" });
    await createObjects(play, twigs, "v1", ["a", "b", "c", "d"]);
    const page = (token?: string) =>
      get(twigs.all("v1"), { accept: METADATA_LIST, query: { limit: 1, continue: token } });
    const options = { pick: names };
    const first = await play.line("the first page", page(), options);
    const token = first.body.metadata.continue;
    await play.line("an object is created behind the page", post(twigs.own("v1"), twigs.object("v1", "bb")), {
      pick: ({ metadata }) => metadata as unknown,
    });
    // Until then the watch cache still has the state of the token, and may answer from that.
    const shape = { storage: "v1", versions: ["v1alpha1", "v1", "v2"] };
    await play.line("the CRD changes, and the watch cache begins again", twigs.setVersions(shape), {
      pick: ({ metadata: { generation } }: Json) => generation as unknown,
    });
    await served(play, twigs, shape);
    await play.line("the token is still good", page(token), options);
    await play.world.compact();
    const expired = await play.line("the token of a state that etcd has compacted", page(token));
    await play.line(
      "the token of that answer goes on at the same object, in the state of now",
      page(expired.body.metadata?.continue),
      options,
    );
  },
};
