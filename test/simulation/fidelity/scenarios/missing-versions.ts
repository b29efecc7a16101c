import { versionsOf } from "../../../integration/crd-fixture.ts";
import { ACCEPT_METADATA, ACCEPT_METADATA_LIST, MERGE_PATCH } from "../../../../src/kube/resources.ts";
import type { Answer, Json } from "../line.ts";
import { HANDLER_LAG_MS, changeStorage, createObjects, createSubject, served } from "../prepare.ts";
import { apply, get, merge, remove, stateOf } from "../script-requests.ts";
import type { Scenario } from "../script-scenario.ts";

const names = ({ items, ...list }: Json): unknown => ({
  ...list,
  items: items.map(({ metadata }: Json) => metadata.name),
});

/** What rule S1 is there to prevent: a version is pruned and removed while an object is stored in it. */
export const lostVersions: Scenario = {
  name: "objects in a version that the CRD lost",
  async play(play) {
    const socks = await createSubject(play, "sock", { storage: "v1alpha1" });
    await createObjects(play, socks, "v1alpha1", ["left", "moved", "other"]);
    await changeStorage(play, socks, { storage: "v1" });
    const noOp = (name: string) => ({
      ...apply(socks.at("v1", name), socks.identity("v1", { name, namespace: "default" })),
      accept: ACCEPT_METADATA,
    });
    for (const name of ["moved", "other"]) await play.line(`${name} is rewritten`, noOp(name));
    const mayInitialize = true;
    const all = get(socks.all("v1"), { accept: ACCEPT_METADATA_LIST, mayInitialize });
    await play.line("the list before", all, { pick: names });
    await play.line(
      "v1alpha1 is pruned all the same",
      merge(`${socks.path}/status`, { status: { storedVersions: ["v1"] } }),
      {
        pick: ({ status }) => status.storedVersions as unknown,
      },
    );
    const without = { storage: "v1", versions: ["v1"] };
    await play.line("v1alpha1 is removed", merge(socks.path, { spec: { versions: versionsOf(without) } }), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await play.wait("v1alpha1 is not served", get(socks.all("v1alpha1")), ({ status }) => status === 404);
    await play.world.pause(HANDLER_LAG_MS);
    await play.line("an object in the lost version cannot be read", get(socks.at("v1", "left")));
    const isRefused = ({ body }: Answer): boolean => String(body.message).includes("invalid group/version");
    await play.until("the list that it is in cannot be read", all, isRefused);
    await play.line("nor can its page", get(socks.all("v1"), { accept: ACCEPT_METADATA_LIST, query: { limit: 1 } }));
    await play.line(
      "nor can a list by its name",
      get(socks.own("v1"), { mayInitialize, query: { fieldSelector: "metadata.name=left" } }),
    );
    await play.line("an apply of it", noOp("left"));
    await play.line("a merge patch of it", { ...noOp("left"), contentType: MERGE_PATCH });
    await play.line("it cannot be deleted", remove(socks.at("v1", "left")));
    const moved = await play.line("an object in the other version can be read", get(socks.at("v1", "moved")));
    await play.line("an apply, where managedFields name the lost version", noOp("moved"));
    await play.line("a merge patch of it passes", {
      ...merge(socks.at("v1", "moved"), { metadata: stateOf(moved) }),
      accept: ACCEPT_METADATA,
    });
    await play.line("a change by a merge patch", merge(socks.at("v1", "moved"), { spec: { size: 2 } }));
    const again = { storage: "v1" };
    await play.line("the version comes back, and is no stored version", socks.setVersions(again), {
      pick: ({ status }) => status.storedVersions as unknown,
    });
    await served(play, socks, again);
    await play.line("the object can be read again", get(socks.at("v1", "left")));
    await play.line("and rewritten", noOp("left"));
  },
};
