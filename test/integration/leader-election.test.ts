import t from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import { LeaderElector } from "../../src/kube/leader-election.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { Cluster, eventually } from "./cluster.ts";

const cluster = await Cluster.start(t);
const namespaces = { group: "", version: "v1", resource: "namespaces" };
await cluster.api.create(namespaces, { apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM_NAMESPACE } });

await t.test("of three replicas one leads, another follows it, and the Lease reads as client-go's", async (t) => {
  const leading: string[] = [];
  const replicas = ["a", "b", "c"].map((identity) => {
    const stop = new AbortController();
    const elector = new LeaderElector({
      client: cluster.api,
      clock: systemClock,
      namespace: SYSTEM_NAMESPACE,
      name: "ksvm-controller",
      identity,
      leaseDurationMs: 6_000,
      renewDeadlineMs: 4_000,
      retryPeriodMs: 500,
    });
    const ended = elector.run(
      stop.signal,
      (signal) =>
        new Promise<void>((resolve) => {
          leading.push(identity);
          signal.addEventListener("abort", () => {
            leading.splice(leading.indexOf(identity), 1);
            resolve();
          });
        }),
    );
    return { identity, elector, ended, stop: () => stop.abort(new Error("stop")) };
  });
  for (let turns = 0; turns < 3; turns++) {
    await eventually(async () => leading.length === 1, "one leads");
    const leader = replicas.find(({ identity }) => identity === leading[0]);
    const lease = await cluster.api.get(LEASES, { namespace: SYSTEM_NAMESPACE, name: "ksvm-controller" });
    t.match(lease, {
      spec: {
        holderIdentity: leading[0],
        leaseDurationSeconds: 6,
        acquireTime: /^\d{4}-.*\.\d{6}Z$/,
        renewTime: /^\d{4}-.*\.\d{6}Z$/,
        leaseTransitions: Number,
      },
    });
    t.ok(leader?.elector.isLeading);
    leader?.stop();
    await leader?.ended;
  }
});
