import { ACCEPT_METADATA, JSON_PATCH, MERGE_PATCH } from "../../../../src/kube/resources.ts";
import type { LineRequest } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import type { Play } from "../play.ts";
import { changeStorage, createObjects, createSubject } from "../prepare.ts";
import {
  apply,
  get,
  jsonPatch,
  merge,
  metadataOf,
  post,
  put,
  remove,
  stateOf,
  type Subject,
} from "../script-requests.ts";

/** The no-op write of ksvm, see src/migrator/rewrite/no-op-write.ts. */
function noOp(
  at: { readonly subject: Subject; readonly version: string },
  name: string,
  state: object,
  more: Partial<LineRequest> = {},
): LineRequest {
  const { subject, version } = at;
  const body = subject.identity(version, { name, namespace: "default", ...state });
  const { query, ...rest } = more;
  return { ...apply(subject.at(version, name), body, query), accept: ACCEPT_METADATA, ...rest };
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
    const old = { subject: rocks, version: "v1alpha1" };
    const names = ["applied", "merged", "patched", "put", "dry"];
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
    await play.line(
      "a second merge patch writes nothing",
      noOp(v1, "merged", stateOf(first), { contentType: MERGE_PATCH }),
    );
    await play.line(
      "a merge patch with a stale resourceVersion",
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
    const whole = await play.line("put as it is", get(rocks.at("v1", "put")));
    const replaced = await play.line(
      "a PUT of the same stores it in the new version",
      put(rocks.at("v1", "put"), whole.body),
    );
    await play.line("a second PUT writes nothing", put(rocks.at("v1", "put"), replaced.body));
    await play.line("a PUT of an old state", put(rocks.at("v1", "put"), whole.body));
    await play.line(
      "an apply in the old version, which is served, stores it in the storage version",
      noOp(old, "dry", await stateNow(play, rocks, "dry")),
    );

    await play.line(
      "an apply of an object that is gone, with its uid",
      noOp(v1, "gone", { uid: FOREIGN_UID, resourceVersion: applied.resourceVersion }),
    );
    await play.line(
      "a merge patch of an object that is gone",
      noOp(v1, "gone", { uid: FOREIGN_UID }, { contentType: MERGE_PATCH }),
    );
    await play.line("an apply that names no uid creates", apply(rocks.at("v1", "made"), rocks.object("v1", "made")));
    await play.line(
      "an apply with a resourceVersion and no uid does not create",
      apply(
        rocks.at("v1", "unmade"),
        rocks.identity("v1", { name: "unmade", resourceVersion: applied.resourceVersion }),
      ),
    );
    await play.line(
      "a patch that names another object",
      merge(rocks.at("v1", "put"), { metadata: { name: "merged" } }),
      { anyMessage: true },
    );
    await play.line(
      "a patch of another kind",
      apply(rocks.at("v1", "put"), { ...rocks.object("v1", "put"), kind: "Other" }),
      { anyMessage: true },
    );
    await play.line(
      "a patch without a content type that it knows",
      { ...merge(rocks.at("v1", "put"), {}), contentType: "application/json" },
      { anyMessage: true },
    );
  },
};

export const edits: Scenario = {
  name: "what users do to objects",
  async play(play) {
    const shape = { storage: "v1", statusSubresource: true };
    const cups = await createSubject(play, "cup", shape);
    const at = cups.at("v1", "a");
    await play.line("read what is not there", get(at));
    await play.line(
      "create in a namespace that is not there",
      post(cups.own("v1").replace("default", "nowhere"), { ...cups.object("v1", "a"), metadata: { name: "a" } }),
    );
    const created = await play.line(
      "create",
      post(cups.own("v1"), cups.object("v1", "a", { status: { ready: true } })),
    );
    await play.line("create it again", post(cups.own("v1"), cups.object("v1", "a")));
    await play.line("create one without a name", post(cups.own("v1"), { ...cups.object("v1", "a"), metadata: {} }), {
      anyMessage: true,
    });
    await play.line("create as a dry-run", post(cups.own("v1"), cups.object("v1", "imagined"), { dryRun: "All" }));
    await play.line("what was created as a dry-run is not there", get(cups.at("v1", "imagined")));
    await play.line("a label: the generation stays", merge(at, { metadata: { labels: { a: "b" } } }));
    await play.line("the spec: the generation grows", merge(at, { spec: { size: 2 } }));
    await play.line("the spec as a dry-run", merge(at, { spec: { size: 3 } }, { dryRun: "All" }));
    await play.line("the status through the main resource changes nothing", merge(at, { status: { ready: false } }));
    await play.line("the status: the generation stays", merge(`${at}/status`, { status: { ready: true } }));
    await play.line("the spec through the status changes nothing", merge(`${at}/status`, { spec: { size: 9 } }));
    await play.line(
      "the status with a stale resourceVersion",
      merge(`${at}/status`, {
        metadata: { resourceVersion: metadataOf(created).resourceVersion },
        status: { ready: false },
      }),
    );
    await play.line("a subresource that there is none of", merge(`${at}/scale`, {}));
    await play.line("null takes a label off", merge(at, { metadata: { labels: { a: null } } }));
    const now = await play.line("as it is now", get(at));
    await play.line("a PUT with a new spec", put(at, { ...now.body, spec: { size: 5 } }));
    await play.line("a PUT without a resourceVersion", put(at, cups.object("v1", "a")), { anyMessage: true });
    await play.line("a PUT of what is not there", put(cups.at("v1", "b"), cups.object("v1", "b")), {
      anyMessage: true,
    });

    await play.line(
      "an apply by its owner",
      apply(cups.at("v1", "c"), { ...cups.object("v1", "c"), spec: { size: 1 } }, { fieldManager: "owner" }),
    );
    await play.line(
      "an apply of another value by another manager is a conflict",
      apply(cups.at("v1", "c"), { ...cups.object("v1", "c"), spec: { size: 2 } }, { fieldManager: "other" }),
    );
    await play.line(
      "an apply of the same value is shared",
      apply(cups.at("v1", "c"), { ...cups.object("v1", "c"), spec: { size: 1 } }, { fieldManager: "other" }),
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
    await play.line("delete with the uid of another object", remove(at, { uid: FOREIGN_UID }));
    await play.line("delete with a stale resourceVersion", remove(at, stateOf(created)));
    await play.line("delete with uid and resourceVersion", remove(at, stateOf(changed)));
    await play.line("delete it again", remove(at, stateOf(changed)));
    await play.line("delete what never was", remove(pens.at("v1", "never")));
    await play.line("create it again: another uid", post(pens.own("v1"), pens.object("v1", "a")));
    await play.line("a write for the one before it", merge(at, { metadata: { uid: stateOf(created).uid } }));
    const held = { metadata: { finalizers: ["example.com/hold"] } };
    await play.line("create one with a finalizer", post(pens.own("v1"), pens.object("v1", "held", held)));
    await play.line("its deletion leaves it there", remove(pens.at("v1", "held")));
    await play.line("a second deletion changes nothing", remove(pens.at("v1", "held")));
    await play.line(
      "a finalizer cannot be added",
      merge(pens.at("v1", "held"), { metadata: { finalizers: ["example.com/hold", "example.com/more"] } }),
      { anyMessage: true },
    );
    await play.line(
      "the last finalizer goes, and the object with it",
      merge(pens.at("v1", "held"), { metadata: { finalizers: null } }),
    );
    await play.line("it is gone", get(pens.at("v1", "held")));
  },
};

export const clusterScoped: Scenario = {
  name: "cluster-scoped objects",
  async play(play) {
    const flags = await createSubject(play, "flag", { storage: "v1alpha1", scope: "Cluster" });
    const object = { ...flags.object("v1alpha1", "a"), metadata: { name: "a" } };
    const created = await play.line("create", post(flags.all("v1alpha1"), object));
    await changeStorage(play, flags, { storage: "v1", scope: "Cluster" });
    const at = `${flags.all("v1")}/a`;
    const body = flags.identity("v1", { name: "a", ...stateOf(created) });
    await play.line("an apply stores it in the new version", { ...apply(at, body), accept: ACCEPT_METADATA });
    await play.line("the list of it", get(flags.all("v1")));
    await play.line("create in a namespace", post(flags.own("v1"), { ...object, apiVersion: "example.com/v1" }), {
      anyMessage: true,
    });
    await play.line("read one that is not there", get(`${flags.all("v1")}/none`));
  },
};
