import tap from "tap";
import { assertSupportedServer, isSupportedVersion, preferredVersions, resourcesOf } from "../../../src/old/kube/discovery.ts";
import { apiVersionOf, collectionPath, groupVersionPath, objectPath } from "../../../src/old/kube/resources.ts";
import { groupList, resourceList, sendJson, startServer } from "./local-server.ts";

const versions: readonly [gitVersion: string, supported: boolean][] = [
  ["v1.32.0", true],
  ["v1.36.3", true],
  ["v1.100.0", true],
  ["v2.0.0", true],
  ["1.32.2", true],
  ["v1.32.4-gke.1348000", true],
  ["v1.33.1-eks-1234567", true],
  ["v1.32.0+k3s1", true],
  ["v1.32.0-alpha.1", true],
  ["v1.31.15", false],
  ["v1.3.0", false],
  ["v0.99.0", false],
  ["v1", false],
  ["", false],
  ["unknown", false],
  ["gke-v1.33.0", false],
];

for (const [gitVersion, supported] of versions) {
  await tap.test(`isSupportedVersion() is ${supported} when it is "${gitVersion}"`, (t) => {
    t.equal(isSupportedVersion(gitVersion), supported);
    t.end();
  });
}

// A real API server is of one version only.
const answers: readonly [name: string, body: unknown, found: string][] = [
  ["is too old", { gitVersion: "v1.31.15" }, "Kubernetes v1.31.15"],
  ["shows no version", {}, "no Kubernetes version"],
  ["shows null", null, "no Kubernetes version"],
];

for (const [name, body, found] of answers) {
  await tap.test(`Supported: assertSupportedServer() throws ServerUnsupported when the server ${name}`, async (t) => {
    const server = await startServer(t, (_, response) => sendJson(response, 200, body));
    await t.rejects(assertSupportedServer(server.transport()), {
      code: "ServerUnsupported",
      message: `Cannot work with ${server.url}: it runs ${found}, and 1.32 or newer is needed`,
    });
  });
}

await tap.test("assertSupportedServer() returns the version when it is new enough", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, { gitVersion: "v1.36.3" }));
  t.equal(await assertSupportedServer(server.transport()), "v1.36.3");
  t.equal(server.seen[0]?.path, "/version");
});

// A real API server always lists something, and its own version.
const noLists: readonly [name: string, body: unknown][] = [
  ["null", null],
  ["an object of a proxy", { status: "ok" }],
  ["a list without entries", { kind: "APIResourceList", groupVersion: "example.com/v1" }],
  ["a list of another version", resourceList("example.com/v2", "widgets")],
  ["a list of no group", { kind: "APIGroupList", groups: [] }],
];

for (const [name, body] of noLists) {
  await tap.test(`resourcesOf() and preferredVersions() conclude nothing from ${name}`, async (t) => {
    const server = await startServer(t, (_, response) => sendJson(response, 200, body));
    const transport = server.transport();
    const error = { name: "DoubtfulAnswer", code: "ApiRequestFailed" };
    await t.rejects(resourcesOf(transport, { group: "example.com", version: "v1" }), error);
    await t.rejects(preferredVersions(transport), error);
  });
}

await tap.test("resourcesOf() and preferredVersions() read the lists of an API server", async (t) => {
  const server = await startServer(t, ({ path }, response) =>
    sendJson(response, 200, path === "/apis" ? groupList("a/v1", "a/v2") : resourceList("a/v1", "widgets")),
  );
  const transport = server.transport();
  t.match(await resourcesOf(transport, { group: "a", version: "v1" }), [{ name: "widgets" }]);
  t.same(await preferredVersions(transport), [
    { group: "", version: "v1", versions: ["v1"] },
    { group: "a", version: "v1", versions: ["v1", "v2"] },
  ]);
});

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
