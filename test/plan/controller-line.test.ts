import tap, { type Test } from "tap";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { type ControllerLine, readControllerLine } from "../../src/plan/run-lines.ts";
import { sendJson, startServer } from "../kube/local-server.ts";

function leaseIn(namespace: string, renewTime: string): object {
  return {
    metadata: { name: CONTROLLER_LEASE, namespace },
    spec: { holderIdentity: `pod-of-${namespace}`, renewTime, leaseDurationSeconds: 15 },
  };
}

async function lineWith(t: Test, ...items: readonly object[]): Promise<ControllerLine> {
  const server = await startServer(t, (_, response) => sendJson(response, 200, { kind: "LeaseList", items }));
  return readControllerLine(new ApiClient(server.transport()));
}

await tap.test("readControllerLine() goes by no Lease of a user beside that of the controller", async (t) => {
  const [long, now] = ["2026-01-01T00:00:00Z", new Date().toISOString()];
  const dead = leaseIn(SYSTEM_NAMESPACE, long);
  t.match(await lineWith(t, leaseIn("tenant", now), dead), { state: "silent", holder: `pod-of-${SYSTEM_NAMESPACE}` });
  t.match(
    await lineWith(t, leaseIn("a", long), leaseIn("b", now)),
    { state: "alive", holder: "pod-of-b" },
    "elsewhere",
  );
});
