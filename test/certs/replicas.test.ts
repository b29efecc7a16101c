import { once } from "node:events";
import { createServer, type AddressInfo, type Server } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import tap, { type Test } from "tap";
import { addressesOf, askReplicas, findReplicas, type ReplicaAddress } from "../../src/certs/replicas.ts";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { ApiClient } from "../../src/kube/client.ts";
import type { Status } from "../../src/api/meta.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const names = { namespace: "ns", service: "hook" };
const issue = () =>
  issueSelfSigned({ dnsNames: ["hook.ns.svc"], ipAddresses: [], now: new Date(), lifetimeMs: 3_600_000 });
const [current, old] = await Promise.all([issue(), issue()]);
const { signal } = new AbortController();

async function listen(t: Test, server: Server): Promise<ReplicaAddress> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { host: "127.0.0.1", port: (server.address() as AddressInfo).port };
}

await tap.test("askReplicas() tells who serves another certificate, and who cannot be asked", async (t) => {
  const serving = await listen(t, createTlsServer({ cert: current.certPem, key: current.keyPem }));
  const stuck = await listen(t, createTlsServer({ cert: old.certPem, key: old.keyPem }));
  const deaf = await listen(
    t,
    createServer((socket) => socket.destroy()),
  );
  const isCurrent = (certificate: { toString(): string }): boolean => certificate.toString() === current.certPem;
  const { others, unasked } = await askReplicas([serving, stuck, deaf], { names, isCurrent, signal });
  t.same(others, [`127.0.0.1:${stuck.port}`]);
  t.equal(unasked.length, 1);
  t.match(unasked[0], new RegExp(`^127.0.0.1:${deaf.port}: `));
});

await tap.test("addressesOf() has every endpoint that serves, those that end included", (t) => {
  const endpoints = [
    { addresses: ["10.0.0.1"] },
    { addresses: ["10.0.0.2"], conditions: { serving: true } },
    { addresses: ["10.0.0.3"], conditions: { serving: false } },
  ];
  t.same(addressesOf({ endpoints, ports: [{ port: 8443 }] }), [
    { host: "10.0.0.1", port: 8443 },
    { host: "10.0.0.2", port: 8443 },
  ]);
  t.same(addressesOf({ endpoints, ports: [] }), []);
  t.same(addressesOf({}), []);
  t.end();
});

await tap.test("findReplicas() reads the Service's EndpointSlices; undefined where that is forbidden", async (t) => {
  // A real API server takes no loopback addresses in an EndpointSlice.
  let refusal: Partial<Status> | string | undefined;
  const server = await startServer(t, (_, response) =>
    refusal !== undefined
      ? typeof refusal === "string"
        ? response.writeHead(403).end(refusal)
        : sendStatus(response, 403, refusal)
      : sendJson(response, 200, { items: [{ endpoints: [{ addresses: ["10.0.0.1"] }], ports: [{ port: 1 }] }] }),
  );
  const client = new ApiClient(server.transport());
  t.same(await findReplicas(client, names, signal), [{ host: "10.0.0.1", port: 1 }]);
  t.equal(server.seen[0]?.path, "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices");
  t.equal(server.seen[0]?.query.get("labelSelector"), "kubernetes.io/service-name=hook");
  const message =
    'endpointslices.discovery.k8s.io is forbidden: User "u" cannot list resource "endpointslices" in API group';
  refusal = { reason: "Forbidden", message };
  t.equal(await findReplicas(client, names, signal), undefined);
  for (refusal of [{}, { reason: "Forbidden" }, "<html>blocked</html>", `<html>${message}</html>`]) {
    const doubtful = { name: "DoubtfulAnswer", code: "ApiRequestFailed" };
    await t.rejects(findReplicas(client, names, signal), doubtful, "no word of the authorizer");
  }
});
