import tap from "tap";

import { apiVersionOf, collectionPath, groupVersionPath, objectPath } from "../../src/kube/resources.ts";

const SECRETS = { group: "", version: "v1", resource: "secrets" };
const WIDGETS = { group: "example.com", version: "v1beta1", resource: "widgets" };

const cases: readonly [name: string, actual: string, expected: string][] = [
  ["groupVersionPath() of the core group", groupVersionPath("", "v1"), "/api/v1"],
  ["groupVersionPath() of a named group", groupVersionPath("apps", "v1"), "/apis/apps/v1"],
  ["apiVersionOf() of the core group", apiVersionOf("", "v1"), "v1"],
  ["apiVersionOf() of a named group", apiVersionOf("apps", "v1"), "apps/v1"],
  ["collectionPath() of the core group", collectionPath(SECRETS), "/api/v1/secrets"],
  ["collectionPath() of a named group", collectionPath(WIDGETS), "/apis/example.com/v1beta1/widgets"],
  [
    "objectPath() of a namespaced object",
    objectPath(SECRETS, { namespace: "ns", name: "a" }),
    "/api/v1/namespaces/ns/secrets/a",
  ],
  [
    "objectPath() of a cluster-scoped object",
    objectPath(WIDGETS, { name: "a" }),
    "/apis/example.com/v1beta1/widgets/a",
  ],
  [
    "objectPath() of names with odd characters",
    objectPath(WIDGETS, { namespace: "a/b", name: "system:x?y#z%" }),
    "/apis/example.com/v1beta1/namespaces/a%2Fb/widgets/system%3Ax%3Fy%23z%25",
  ],
];

for (const [name, actual, expected] of cases) {
  await tap.test(`${name} is ${expected}`, (t) => {
    t.equal(actual, expected);
    t.end();
  });
}
