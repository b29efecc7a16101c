import { ACCEPT_METADATA_LIST } from "../../../../src/kube/resources.ts";
import type { Json, WebhookDeed } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { changeStorage, createObjects, createSubject } from "../prepare.ts";
import { apply, get, merge, post } from "../script-requests.ts";

const names = ({ items, ...list }: Json): unknown => ({
  ...list,
  items: items.map(({ metadata }: Json) => metadata.name),
});

function converted(uid: string, response: object): WebhookDeed {
  return {
    answer: { apiVersion: "apiextensions.k8s.io/v1", kind: "ConversionReview", response: { uid, ...response } },
  };
}

export const conversions: Scenario = {
  name: "conversion webhooks",
  async play(play) {
    let mood: "works" | "reset" | "failing" | "html" = "works";
    const client = await play.webhook("kites", ({ request: { desiredAPIVersion, objects, uid } }: Json) => {
      if (mood === "reset") return "reset";
      if (mood === "failing") return { answer: "it fails", status: 500 };
      if (mood === "html") return { answer: "<html></html>" };
      const refused = objects.find(({ metadata, spec }: Json) => metadata.name === "refused" && spec.size === 1);
      if (refused !== undefined) {
        return converted(uid, { result: { status: "Failure", message: "refused cannot be converted" } });
      }
      return converted(uid, {
        result: { status: "Success" },
        convertedObjects: objects.map((one: Json) => ({ ...one, apiVersion: desiredAPIVersion })),
      });
    });
    const conversion = { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig: client } };
    const shape = { storage: "v1alpha1", conversion };
    const kites = await createSubject(play, "kite", shape);
    await createObjects(play, kites, "v1alpha1", ["a", "b"]);
    await changeStorage(play, kites, { ...shape, storage: "v1" });
    const all = (version: string) => get(kites.all(version), { accept: ACCEPT_METADATA_LIST });
    const noOp = (name: string, version = "v1") =>
      apply(kites.at(version, name), kites.identity(version, { name, namespace: "default" }));
    await play.line("the webhook converts what is stored otherwise", get(kites.at("v1", "a")));
    await play.line("a no-op write stores it in the new version", noOp("a"));
    mood = "reset";
    await play.line("down: an object in its own version is read", get(kites.at("v1", "a")), {
      pick: ({ metadata }) => metadata.name as unknown,
    });
    await play.line("down: an object in another version is not read", get(kites.at("v1", "b")));
    await play.line("down: a list with such an object", all("v1"));
    await play.line("down: a no-op write of such an object", noOp("b"));
    await play.line("down: a create in the storage version", post(kites.own("v1"), kites.object("v1", "c")), {
      pick: ({ metadata }) => metadata.name as unknown,
    });
    await play.line("down: a create in another version", post(kites.own("v1alpha1"), kites.object("v1alpha1", "d")));
    mood = "failing";
    await play.line("failing: an object in another version", get(kites.at("v1", "b")));
    mood = "html";
    await play.line("no review: an object in another version", get(kites.at("v1", "b")), { anyMessage: true });
    mood = "works";
    await createObjects(play, kites, "v1", ["refused"]);
    await play.line("refused: an object in another version", get(kites.at("v1alpha1", "refused")));
    await play.line("refused: a list with it", all("v1alpha1"));
    await play.line(
      "refused: a list without it, by name",
      get(kites.own("v1alpha1"), { accept: ACCEPT_METADATA_LIST, query: { fieldSelector: "metadata.name=a" } }),
      { pick: names },
    );
    await play.line(
      "refused: a page before it",
      get(kites.all("v1alpha1"), { accept: ACCEPT_METADATA_LIST, query: { limit: 1 } }),
      { pick: names },
    );
    await play.line("refused: the list in its own version", all("v1"), { pick: names });
    await play.line(
      "refused: a write in another version",
      merge(kites.at("v1alpha1", "refused"), { spec: { size: 2 } }),
    );
  },
};
