import tap from "tap";
import { randomFrom } from "../../chaos/random.ts";
import { SimEtcd } from "../model/etcd.ts";
import { RELEASE_1_36 } from "../model/resource-table.ts";
import type { ModelAnswer } from "../model/types.ts";
import { ApiServerNode } from "./api-server-node.ts";
import { Schedule } from "./schedule.ts";

const LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/** A webhook for Leases that never answers and may fail. */
function hangingHook(name: string, timeoutSeconds: number): object {
  return {
    name: `${name}.example.com`,
    clientConfig: { url: "https://hangs.test" },
    rules: [{ apiGroups: ["*"], apiVersions: ["*"], resources: ["leases"], operations: ["CREATE"] }],
    sideEffects: "None",
    admissionReviewVersions: ["v1"],
    failurePolicy: "Ignore",
    timeoutSeconds,
  };
}

/** Creates a Lease while such webhooks hang, one after the other. @returns its answer, and whether it was written in two minutes */
async function createdBehind(
  timeLimits: readonly number[],
): Promise<{ status: number | undefined; isWritten: boolean }> {
  const schedule = new Schedule(randomFrom(1));
  const etcd = new SimEtcd();
  etcd.put(
    "/registry/namespaces/default",
    { object: { apiVersion: "v1", kind: "Namespace", metadata: { name: "default" } } },
    0,
  );
  const node = new ApiServerNode({
    schedule,
    random: randomFrom(2),
    etcd,
    name: "server-0",
    url: "https://10.0.0.1:6443",
    build: { release: RELEASE_1_36, encryption: { writes: 0, reads: new Set(), resources: new Set() } },
    callWebhook: () => Promise.withResolvers<never>().promise,
  });
  const post = (path: string, body: object): Promise<ModelAnswer> =>
    node.handle({
      method: "POST",
      path,
      query: new URLSearchParams(),
      headers: {},
      body: JSON.stringify(body),
      user: "a",
    });
  const webhooks = timeLimits.map((seconds, index) => hangingHook(`hook-${index}`, seconds));
  const apiVersion = "admissionregistration.k8s.io/v1";
  void post(MUTATING, { apiVersion, kind: "MutatingWebhookConfiguration", metadata: { name: "hang" }, webhooks });
  await schedule.run(() => false, 1_000);
  let status: number | undefined;
  void post(LEASES, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "late" }, spec: {} }).then(
    (answer) => (status = answer.status),
  );
  await schedule.run(() => false, 120_000);
  await schedule.end();
  return { status, isWritten: etcd.get("/registry/leases/default/late") !== undefined };
}

await tap.test("a request whose time webhooks took writes nothing, though they may fail", async (t) => {
  t.same(await createdBehind([30, 29]), { status: 201, isWritten: true }, "its minute is not over");
  t.same(await createdBehind([30, 30, 1]), { status: 504, isWritten: false });
});
