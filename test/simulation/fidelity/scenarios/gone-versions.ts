import { ACCEPT_METADATA_LIST } from "../../../../src/kube/resources.ts";
import type { Answer, Json } from "../line.ts";
import { changeStorage, createObjects, createSubject, served } from "../prepare.ts";
import { apply, get, merge, post, put, remove } from "../script-requests.ts";
import type { Scenario } from "../script-scenario.ts";

/** What becomes of objects whose version, or that of their managedFields, is taken out of the CRD. */
export const goneVersions: Scenario = {
  name: "versions that are gone",
  async play(play) {
    const ruins = await createSubject(play, "ruin", { storage: "v1alpha1" });
    await createObjects(play, ruins, "v1alpha1", ["lost", "rewritten", "patched", "replaced"]);
    await changeStorage(play, ruins, { storage: "v1" });
    const noOp = (name: string) => apply(ruins.at("v1", name), ruins.identity("v1", { name, namespace: "default" }));
    for (const name of ["rewritten", "patched", "replaced"]) await play.line(`rewrite ${name}`, noOp(name));
    await play.line("prune too early", merge(`${ruins.path}/status`, { status: { storedVersions: ["v1"] } }), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    const shape = { storage: "v1", versions: ["v1"] };
    await play.line("take the old version out", ruins.setVersions(shape), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await play.wait("discovery no longer shows it", get("/apis/example.com/v1alpha1"), ({ body, status }) => {
      const listed: readonly { readonly name: string }[] = status === 200 ? (body.resources ?? []) : [];
      return listed.every(({ name }) => name !== ruins.plural);
    });
    await play.world.pause(300);
    const byName = (name: string) => ({
      accept: ACCEPT_METADATA_LIST,
      query: { fieldSelector: `metadata.name=${name}` },
    });
    await play.line("an object that is stored in it", get(ruins.at("v1", "lost")));
    await play.line("a page with it", get(ruins.all("v1"), { accept: ACCEPT_METADATA_LIST, query: { limit: 500 } }));
    // When to ask again depends on how long the watch cache has been without a state.
    const refusal = ({ body: { code, message, reason } }: Answer): unknown => ({ code, message, reason });
    for (const name of ["rewritten", "lost"]) {
      const answer = await play.world.send(get(ruins.own("v1"), { ...byName(name), mayInitialize: true }));
      play.fact(`a list of ${name} by name: the watch cache cannot be filled`, refusal(answer));
    }
    const watch = await play.world.send(
      get(ruins.own("v1"), { query: { watch: true, resourceVersion: "0" }, mayInitialize: true }),
    );
    play.fact("a watch: the watch cache cannot be filled", refusal(watch));
    await play.line("an apply to it", noOp("lost"));
    await play.line("a merge patch of it", merge(ruins.at("v1", "lost"), { metadata: { labels: { a: "b" } } }));
    await play.line("a deletion of it", remove(ruins.at("v1", "lost")));
    await play.line("an object whose managedFields name it", get(ruins.at("v1", "rewritten")));
    await play.line("an apply to that one", noOp("rewritten"));
    await play.line("a merge patch of that one that changes nothing", merge(ruins.at("v1", "rewritten"), {}));
    await play.line(
      "a merge patch of that one",
      merge(ruins.at("v1", "patched"), { metadata: { labels: { a: "b" } } }),
    );
    const whole = await play.line("that one as it is", get(ruins.at("v1", "replaced")));
    await play.line("a PUT of that one", put(ruins.at("v1", "replaced"), { ...whole.body, spec: { size: 2 } }));
    await play.line("a deletion of that one", remove(ruins.at("v1", "rewritten")));
    // An API server with an object that it cannot read takes a minute to shut down.
    await play.line("put the old version back", ruins.setVersions({ storage: "v1" }), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await served(play, ruins, { storage: "v1" });
    await play.until("the object is read again", get(ruins.at("v1", "lost")), ({ status }) => status === 200);
    await play.until("and listed", get(ruins.own("v1"), byName("lost")), ({ status }) => status === 200, {
      pick: ({ items }: Json) => items.length as unknown,
    });
  },
};

/** What a merge patch and an apply make of managedFields in another version while the conversion webhook is down. */
export const unconvertedManagers: Scenario = {
  name: "managedFields that cannot be converted",
  async play(play) {
    let mood: "works" | "reset" = "works";
    const client = await play.webhook("banners", ({ request: { desiredAPIVersion, objects, uid } }: Json) => {
      if (mood === "reset") return "reset";
      const convertedObjects = objects.map((one: Json) => ({ ...one, apiVersion: desiredAPIVersion }));
      const response = { uid, result: { status: "Success" }, convertedObjects };
      return { answer: { apiVersion: "apiextensions.k8s.io/v1", kind: "ConversionReview", response } };
    });
    const conversion = { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig: client } };
    const shape = { storage: "v1alpha1", conversion };
    const banners = await createSubject(play, "banner", shape);
    await createObjects(play, banners, "v1alpha1", ["a", "b", "c"]);
    await changeStorage(play, banners, { ...shape, storage: "v1" });
    const noOp = (name: string) =>
      apply(banners.at("v1", name), banners.identity("v1", { name, namespace: "default" }));
    for (const name of ["a", "b", "c"]) await play.line(`rewrite ${name}`, noOp(name));
    mood = "reset";
    await play.line("down: an apply that changes nothing", noOp("a"));
    await play.line("down: an apply", apply(banners.at("v1", "a"), banners.object("v1", "a", { spec: { size: 2 } })));
    await play.line("down: a merge patch that changes nothing", merge(banners.at("v1", "b"), {}));
    await play.line("down: a merge patch", merge(banners.at("v1", "c"), { metadata: { labels: { a: "b" } } }));
    await play.line("down: a create", post(banners.own("v1"), banners.object("v1", "d")));
  },
};

/** What a dry-run does and does not do. */
export const dryRuns: Scenario = {
  name: "dry-runs",
  async play(play) {
    const clouds = await createSubject(play, "cloud", { storage: "v1" });
    await createObjects(play, clouds, "v1", ["a"]);
    const dryRun = { dryRun: "All" };
    await play.line("create what is there", post(clouds.own("v1"), clouds.object("v1", "a"), dryRun));
    await play.line("an apply that would create", apply(clouds.at("v1", "b"), clouds.object("v1", "b"), dryRun), {
      pick: ({ metadata }) => ({ ...metadata, resourceVersion: metadata.resourceVersion }) as unknown,
    });
    await play.line("a deletion", { ...remove(clouds.at("v1", "a")), query: dryRun });
    await play.line("a deletion, as its body says it", {
      ...remove(clouds.at("v1", "a")),
      body: { apiVersion: "v1", kind: "DeleteOptions", dryRun: ["All"] },
    });
    await play.line(
      "a change of the storage version",
      { ...clouds.setVersions({ storage: "v1alpha1" }), query: dryRun },
      {
        pick: ({ metadata: { generation }, status: { storedVersions } }) => ({ generation, storedVersions }),
      },
    );
    await play.line("a dry-run of something else", merge(clouds.at("v1", "a"), {}, { dryRun: "Some" }), {
      anyMessage: true,
    });
    await play.line("all of it is as it was", get(clouds.at("v1", "a")));
  },
};

/** What is read at a resourceVersion. */
export const oldStates: Scenario = {
  name: "states of other resourceVersions",
  async play(play) {
    const tides = await createSubject(play, "tide", { storage: "v1" });
    await createObjects(play, tides, "v1", ["a"]);
    const first = await play.line("a as it is", get(tides.at("v1", "a")));
    const { resourceVersion } = first.body.metadata;
    await play.line("a changes", merge(tides.at("v1", "a"), { spec: { size: 2 } }));
    const facts = ({ items, kind, metadata }: Json): unknown => ({
      kind,
      metadata,
      items: items.map(({ spec }: Json) => spec as unknown),
    });
    const at = (query: object) => get(tides.all("v1"), { query: { ...query } });
    await play.line("a list of exactly that state", at({ resourceVersion, resourceVersionMatch: "Exact" }), {
      pick: ({ items, metadata }) => ({ metadata, sizes: items.map(({ spec }: Json) => spec.size) }),
    });
    await play.line("a list that is not older", at({ resourceVersion, resourceVersionMatch: "NotOlderThan" }), {
      pick: facts,
    });
    await play.line("a match without a resourceVersion", at({ resourceVersionMatch: "Exact" }), { anyMessage: true });
    await play.line("a read that is not older", get(tides.at("v1", "a"), { query: { resourceVersion } }));
    await play.line("a list of a resourceVersion that is to come", at({ resourceVersion: "9000000000" }), {
      anyMessage: true,
    });
  },
};
