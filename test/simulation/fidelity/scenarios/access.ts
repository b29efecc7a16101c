import type { Json } from "../line.ts";
import type { Scenario } from "../script-scenario.ts";
import { createSubject } from "../prepare.ts";
import { crdPath, CRD_COLLECTION, get, merge, post, remove } from "../script-requests.ts";

const REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/** A user that the world knows, and who may do what roles say. */
const USER = "limited";

function review(resourceAttributes: object): Json {
  return { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } };
}

const isAllowed = { pick: ({ status }: Json) => status.allowed as unknown };

export const access: Scenario = {
  name: "what a user may do",
  async play(play) {
    const keys = await createSubject(play, "key", { storage: "v1" });
    await play.world.grant(USER, []);
    const as = { user: USER };
    await play.line("create one", post(keys.own("v1"), keys.object("v1", "a")), {
      pick: ({ metadata }) => metadata.name as unknown,
    });
    const list = { group: "example.com", resource: keys.plural, verb: "list" };
    await play.line("a review before there is a role", { ...post(REVIEWS, review(list)), ...as }, isAllowed);
    await play.line("a list before there is a role", get(keys.all("v1"), as));
    await play.line("a list in a namespace", get(keys.own("v1"), as));
    await play.line("a read", get(keys.at("v1", "a"), as));
    await play.line("a create", { ...post(keys.own("v1"), keys.object("v1", "b")), ...as });
    await play.line("a patch", { ...merge(keys.at("v1", "a"), {}), ...as });
    await play.line("a patch of the status", { ...merge(`${keys.at("v1", "a")}/status`, {}), ...as });
    await play.line("a deletion", { ...remove(keys.at("v1", "a")), ...as });
    await play.line("a patch of a CRD", { ...merge(crdPath(keys.name), {}), ...as });
    await play.line("a list of CRDs", get(CRD_COLLECTION, as));
    await play.line("a watch", get(keys.all("v1"), { ...as, query: { watch: true } }));
    await play.line("the metrics", get("/metrics", { ...as, accept: "text/plain" }));
    await play.line("discovery, which all may read", get("/apis/example.com", as), {
      pick: ({ kind }) => kind as unknown,
    });
    await play.line("the version, which all may read", get("/version", as), { pick: () => "a version" });
    await play.line("a resource that is not there", get("/apis/example.com/v1/nothings", as));

    await play.world.grant(USER, [{ group: "example.com", resource: keys.plural, verbs: ["list", "get"] }]);
    await play.wait("the role is in force", get(keys.all("v1"), as), ({ status }) => status === 200);
    await play.line("a review of what the role grants", { ...post(REVIEWS, review(list)), ...as }, isAllowed);
    await play.line(
      "a review of what it does not grant",
      { ...post(REVIEWS, review({ ...list, verb: "patch" })), ...as },
      isAllowed,
    );
    await play.line(
      "a review of a subresource",
      { ...post(REVIEWS, review({ ...list, verb: "get", subresource: "status" })), ...as },
      isAllowed,
    );
    await play.line(
      "a review in a namespace",
      { ...post(REVIEWS, review({ ...list, namespace: "default" })), ...as },
      isAllowed,
    );
    await play.line("a review of the administrator", post(REVIEWS, review({ ...list, verb: "patch" })), isAllowed);
    await play.line("a list that is granted", get(keys.own("v1"), as), {
      pick: ({ items }) => items.length as unknown,
    });
    await play.line("a watch that is not", get(keys.all("v1"), { ...as, query: { watch: true } }));
    await play.line("a patch that is not", { ...merge(keys.at("v1", "a"), {}), ...as });
  },
};
