import pino from "pino";
import type { Test } from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import type { WebhookSettings } from "../../src/controller/settings.ts";
import { WebhookPart } from "../../src/controller/webhook-part.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { Loop } from "../../src/observability/loops.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import { Waker } from "../../src/retry/waker.ts";
import { SETTINGS } from "./certs-fixture.ts";

/** Where a started part differs from a replica that keeps its own certificates. */
export interface StartedPartOptions {
  readonly clock?: Clock;
  readonly webhook?: Partial<WebhookSettings>;
  /** Woken where the Secret has lost its certificates. @default nobody */
  readonly lost?: Waker;
  /** Runs once the part has ended. @default nothing */
  readonly afterwards?: () => Promise<unknown>;
}

/** What every replica runs, without anything that leads. It ends with the test, and its configuration is deleted then. */
export function startWebhookPart(t: Test, client: ApiClient, options: StartedPartOptions = {}): WebhookPart {
  const { afterwards, clock = systemClock, lost = new Waker(), webhook } = options;
  const served = { host: "127.0.0.1", port: 0, certificates: "own", certDir: "", drainMs: 0 } as const;
  const part = new WebhookPart({
    client,
    clock,
    logger: pino({ level: "silent" }),
    metrics: new Metrics(),
    progressOf: () => undefined,
    lost,
    loops: { add: () => new Loop(clock, Number.POSITIVE_INFINITY, () => undefined) },
    settings: { certificates: SETTINGS, webhook: { ...served, ...webhook } },
  });
  const stop = new AbortController();
  const ended = part.run(stop.signal);
  t.teardown(async () => {
    stop.abort();
    await ended;
    await client.delete(WEBHOOK_CONFIGURATIONS, { name: WEBHOOK_NAME });
    await afterwards?.();
  });
  return part;
}
