import tap from "tap";

import { assertSupportedServer, isSupportedVersion, preferredVersions, resourcesOf } from "../../src/kube/discovery.ts";
import { sendJson, startServer } from "./local-server.ts";

const versions: readonly [gitVersion: string, supported: boolean][] = [
  ["v1.30.0", true],
  ["v1.36.3", true],
  ["v1.100.0", true],
  ["v2.0.0", true],
  ["1.31.2", true],
  ["v1.30.4-gke.1348000", true],
  ["v1.33.1-eks-1234567", true],
  ["v1.32.0+k3s1", true],
  ["v1.30.0-alpha.1", true],
  ["v1.29.15", false],
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
  ["is too old", { gitVersion: "v1.29.15" }, "Kubernetes v1.29.15"],
  ["shows no version", {}, "no Kubernetes version"],
  ["shows null", null, "no Kubernetes version"],
];

for (const [name, body, found] of answers) {
  await tap.test(`Supported: assertSupportedServer() throws ServerUnsupported when the server ${name}`, async (t) => {
    const server = await startServer(t, (_, response) => sendJson(response, 200, body));
    await t.rejects(assertSupportedServer(server.transport()), {
      code: "ServerUnsupported",
      message: `Cannot work with ${server.url}: it runs ${found}, and 1.30 or newer is needed`,
    });
  });
}

await tap.test("assertSupportedServer() returns the version when it is new enough", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, { gitVersion: "v1.36.3" }));
  t.equal(await assertSupportedServer(server.transport()), "v1.36.3");
  t.equal(server.seen[0]?.path, "/version");
});

await tap.test("resourcesOf() and preferredVersions() read nothing out of an answer that lists nothing", async (t) => {
  // A real API server always lists something.
  const server = await startServer(t, (_, response) => sendJson(response, 200, { kind: "APIResourceList" }));
  const transport = server.transport();
  t.same(await resourcesOf(transport, { group: "example.com", version: "v1" }), []);
  t.same(await preferredVersions(transport), [{ group: "", version: "v1", versions: ["v1"] }]);
  t.same(
    server.seen.map(({ path }) => path),
    ["/apis/example.com/v1", "/apis"],
  );
});
