import { keepCertificates } from "../../../src/certs/keep-certificates.ts";
import { replicaLoops } from "../../../src/controller/replica-loops.ts";
import { CONTROLLER_DEFAULTS } from "../../../src/controller/settings.ts";
import { WebhookPart, type WebhookPartOptions } from "../../../src/controller/webhook-part.ts";
import { Metrics } from "../../../src/observability/metrics.ts";
import { Waker } from "../../../src/retry/waker.ts";
import type { ServingCertificate } from "../../../src/webhook/serving-certificate.ts";
import { SimProcess } from "../world/sim-process.ts";
import { REPLICA_PORT } from "../world/sim-webhook-service.ts";
import type { World } from "../world/world.ts";
import { certificateSettings, certificateTools } from "./certificate-tools.ts";
import { installedIn } from "./installed-webhook.ts";
import { programLogger } from "./program-logger.ts";
import type { Program } from "./started-program.ts";

/** Nothing reads what they count, and to make them takes as long as a small world. */
const metrics = new Metrics();
/** A pod that crashed is started again after this time, in milliseconds. */
const RESTART_MS = 10_000;

/**
 * A replica of the installed webhook: it answers reviews, and keeps the configuration. Each keeps the certificates as well, as
 * the replica that leads does: several at once are what leaders that change, the Job and the CronJob come to.
 */
export class WebhookProgram implements Program {
  readonly process: SimProcess;
  readonly isAtRest = true;
  readonly endText = undefined;
  readonly #stop = new AbortController();

  constructor(world: World, name: string) {
    const process = new SimProcess(world.schedule, name);
    const { signal } = this.#stop;
    world.schedule.untilEnd(() => this.#stop.abort());
    this.process = process;
    const client = world.cluster.clientOf(process);
    const settings = { certificates: certificateSettings(world), webhook: servingSettings(name) };
    const loops = replicaLoops(process.clock, { runs: world.settings });
    const lost = new Waker();
    const part = servedPart(world, process, {
      client,
      clock: process.clock,
      logger: programLogger(world, process, "silent"),
      metrics,
      settings,
      progressOf: () => undefined,
      loops,
      lost,
    });
    void part.run(signal);
    void keepCertificates({ ...certificateTools(world, process, { client, signal }), lost });
    process.onCrash(() => {
      world.schedule.in(RESTART_MS, () => {
        const slot = world.programs.indexOf(this);
        if (slot >= 0) world.start(slot);
      });
    });
  }

  interrupt(): void {
    this.#stop.abort();
  }
}

/** How a replica in a process of this name serves the webhook. */
export function servingSettings(name: string): WebhookPartOptions["settings"]["webhook"] {
  const { certDir } = CONTROLLER_DEFAULTS;
  return { host: addressOf(name), port: REPLICA_PORT, certificates: "own", certDir, drainMs: 0 };
}

/** The part of a replica that serves the webhook, and is reached by the Service; its server is nothing but the pair that it serves. */
export function servedPart(world: World, process: SimProcess, options: WebhookPartOptions): WebhookPart {
  const { host } = options.settings.webhook;
  let certificate: ServingCertificate | undefined;
  const part = new WebhookPart({
    ...options,
    startServer: async (server) => {
      ({ certificate } = server);
      const ready = (): string | undefined => server.certificate.unusable() ?? server.lacking?.();
      return { url: `https://${host}:${REPLICA_PORT}`, port: REPLICA_PORT, ready, close: async () => undefined };
    },
  });
  const certPem = (): string | undefined => certificate?.current?.certPem;
  installedIn(world).service.add({ process, host, certPem, ready: () => part.ready() });
  return part;
}

/** Of a pod: no two have had the same. @param name as in `ksvm-0-12` */
function addressOf(name: string): string {
  const start = Number(name.split("-").at(-1));
  return `10.244.${start >> 8}.${start & 255}`;
}
