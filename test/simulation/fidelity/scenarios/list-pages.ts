import { ACCEPT_METADATA_LIST } from "../../../../src/kube/resources.ts";
import type { Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { createObjects, createSubject, served } from "../prepare.ts";
import { get, merge, post, remove } from "../script-requests.ts";

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
    await play.line("an empty list of metadata", get(all, { accept: ACCEPT_METADATA_LIST }));
    await createObjects(play, leaves, "v1", ["e", "b", "d", "a", "c"]);
    await play.line("a list is in the order of names", get(all), { pick: names });
    await play.line("a list of whole objects by name", get(leaves.own("v1"), { query: byName("b") }));
    await play.line(
      "a list of metadata by name",
      get(leaves.own("v1"), { accept: ACCEPT_METADATA_LIST, query: byName("b") }),
    );
    await play.line(
      "a list by a name that is not there",
      get(leaves.own("v1"), { accept: ACCEPT_METADATA_LIST, query: byName("z") }),
    );
    await play.line(
      "a list of a namespace that is not there",
      get(leaves.own("v1").replace("default", "nowhere"), { query: byName("b") }),
    );
    await play.line("a field that cannot be selected", get(all, { query: { fieldSelector: "spec.size=1" } }), {
      anyMessage: true,
    });
    await play.line("a label", merge(leaves.at("v1", "c"), { metadata: { labels: { color: "red" } } }));
    await play.line("a list by label", get(all, { query: { labelSelector: "color=red" } }), { pick: names });
    await play.line("a list by a label that none has", get(all, { query: { labelSelector: "color=blue" } }), {
      pick: names,
    });
    await play.line(
      "a list by label with a limit has no remainingItemCount",
      get(all, { query: { labelSelector: "color!=red", limit: 2 } }),
      { pick: names },
    );

    const page = (limit: number, token?: string) =>
      get(all, { accept: ACCEPT_METADATA_LIST, query: { limit, continue: token } });
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
    await play.line("the same token again, with another limit", page(10, first.body.metadata.continue), options);
    await play.line("one page with room for all", page(10), options);
    await play.line("a page that is full, with nothing behind it", page(5), options);
    await play.line("a token that is none", page(2, "none"), { anyMessage: true });
    await play.line(
      "a token and a resourceVersion",
      get(all, {
        query: {
          limit: 2,
          continue: first.body.metadata.continue,
          resourceVersion: first.body.metadata.resourceVersion,
        },
      }),
      {
        anyMessage: true,
      },
    );
    await play.line("a list of another version", get(leaves.all("v1alpha1"), { query: byName("b") }));
    await play.line("a list in another namespace", get(leaves.own("v1").replace("default", "kube-system")), {
      pick: names,
    });
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
      get(twigs.all("v1"), { accept: ACCEPT_METADATA_LIST, query: { limit: 1, continue: token } });
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
    const next = await play.line(
      "the token of that answer goes on at the same object, in the state of now",
      page(expired.body.metadata?.continue),
      options,
    );
    await play.line("and so does the next one", page(next.body.metadata.continue), options);
    await play.line("the token that expired does so again", page(token));
  },
};
