import { pino } from "pino";
import { CONTROLLER_LEASE, SYSTEM_NAMESPACE } from "../../src/api/migration.ts";
import { systemClock } from "../../src/clock.ts";
import { MigrationController } from "../../src/controller/migration-controller.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { LeaderElector } from "../../src/lease/leader-election.ts";
import { Transport } from "../../src/kube/transport.ts";
import { MigrationFeed } from "../../src/migrations/migration-feed.ts";
import { type ControllerSettings, openRunFor } from "./controller-fixture.ts";

// One replica: leader election and the migration controller, with nothing around them.
const [kubeconfig = "", identity = "", settings = "{}"] = process.argv.slice(2);
const client = new ApiClient(new Transport(loadKubeConfig({ kubeconfig })));
const elector = new LeaderElector({
  client,
  clock: systemClock,
  namespace: SYSTEM_NAMESPACE,
  name: CONTROLLER_LEASE,
  identity,
});
const logger = pino({ level: process.env["KSVM_TEST_LOG"] ?? "silent" });
const feed = new MigrationFeed({ client, clock: systemClock, logger });
const migrate = (signal: AbortSignal): Promise<void> =>
  new MigrationController({
    client,
    clock: systemClock,
    logger,
    feed,
    openRun: openRunFor(client, JSON.parse(settings) as ControllerSettings),
    identity,
    leadership: elector,
  }).run(signal);
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort(new Error("received SIGTERM")));
await elector.run(stop.signal, migrate, (isLeading) => process.stdout.write(isLeading ? "leading\n" : "lost\n"));
await client.transport.close();
