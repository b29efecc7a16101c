import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import t, { type Test } from "tap";
import { SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { LeaderElector } from "../../src/lease/leader-election.ts";
import { LEASES } from "../../src/kube/resources.ts";
import { Transport } from "../../src/kube/transport.ts";
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

/** Issues the token once, for a second, and then hangs. */
const PLUGIN = `
import { appendFileSync, existsSync, writeFileSync } from "node:fs";
const [folder, token] = process.argv.slice(2);
if (existsSync(folder + "/issued")) {
  appendFileSync(folder + "/hung", "x");
  setInterval(() => undefined, 1_000);
} else {
  writeFileSync(folder + "/issued", "");
  const expirationTimestamp = new Date(Date.now() + 1_000).toISOString();
  const status = { token, expirationTimestamp };
  console.log(JSON.stringify({ apiVersion: "client.authentication.k8s.io/v1", kind: "ExecCredential", status }));
}
`;

/** A kubeconfig whose exec plugin hangs once its first token has expired. */
function hangingKubeconfig(t: Test): { readonly kubeconfig: string; readonly isHung: () => boolean } {
  const admin = JSON.parse(cluster.controlPlane.kubeconfigTextFor()) as { users: { user: { token: string } }[] };
  const [first] = admin.users;
  const folder = t.testdir({ "plugin.mjs": PLUGIN });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(folder, "plugin.mjs"), folder, first?.user.token],
    interactiveMode: "Never",
  };
  const kubeconfig = join(folder, "config");
  writeFileSync(kubeconfig, JSON.stringify({ ...admin, users: [{ ...first, user: { exec } }] }));
  return { kubeconfig, isHung: () => existsSync(join(folder, "hung")) };
}

await t.test("a leader whose exec plugin hangs leads no more before another replica does", async (t) => {
  const { kubeconfig, isHung } = hangingKubeconfig(t);
  // Credentials are asked for again after a minute: by this clock that is a second.
  const clock = { ...systemClock, monotonic: () => systemClock.monotonic() * 60 };
  const transport = new Transport(loadKubeConfig({ kubeconfig }), { clock });
  t.teardown(() => transport.close());
  const leading = new Set<string>();
  const log: string[] = [];
  const start = (identity: string, client: ApiClient) => {
    const stop = new AbortController();
    const errors: unknown[] = [];
    const options = { clock: systemClock, namespace: SYSTEM_NAMESPACE, name: "hanging", identity };
    const times = { leaseDurationMs: 6_000, renewDeadlineMs: 4_000, retryPeriodMs: 500 };
    const elector = new LeaderElector({ client, ...options, ...times, onError: (error) => errors.push(error) });
    const ended = elector.run(
      stop.signal,
      (signal) =>
        new Promise<void>((resolve) => {
          leading.add(identity);
          log.push(`${identity} leads, ${leading.size} in all`);
          signal.addEventListener("abort", () => {
            leading.delete(identity);
            log.push(`${identity} leads no more`);
            resolve();
          });
        }),
    );
    t.teardown(() => stop.abort(new Error("the test has ended")));
    return { elector, ended, errors, stop: () => stop.abort(new Error("stop")) };
  };
  const hanging = start("hanging", new ApiClient(transport));
  await eventually(async () => leading.has("hanging"), "it leads");
  const other = start("other", cluster.api);
  await eventually(async () => leading.has("other"), "the other one leads");
  t.ok(isHung(), "negative control: the plugin was asked again, and hangs");
  t.same(log, ["hanging leads, 1 in all", "hanging leads no more", "other leads, 1 in all"], "never both");
  t.notOk(hanging.elector.isLeading);
  t.throws(() => hanging.elector.assertLeading(), { code: "OwnershipLost" });
  t.match(hanging.errors.map(String).join("\n"), /Cannot renew Lease|no answer/, "it says why");
  hanging.stop();
  other.stop();
  // A plugin that hangs holds nobody up.
  await Promise.all([hanging.ended, other.ended]);
});
