import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { migrate } from "../../src/migrator/migrate.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { WaitingForOthers } from "../../src/retry/start-again.ts";
import { FakeClock } from "../fake-clock.ts";

const request = ({ path }: ApiRequest): Promise<never> =>
  Promise.reject(new ApiError(`GET ${path}`, 503, { text: "service unavailable" }));

// A stand-in: an aggregated API server that is down for a quarter of an hour.
await tap.test("migrate() gives its place up where it cannot find out what the resource is", async (t) => {
  const clock = new FakeClock();
  const context = {
    arrivals: UNSEEN_ARRIVALS,
    client: new ApiClient({ server: "https://stand-in", request } as unknown as Transport),
    clock,
    options: { dryRun: false },
    isPlaceWanted: () => true,
    signal: new AbortController().signal,
    retrier: new Retrier({ clock, random: () => 0.5 }),
  } as unknown as RunContext;
  const error: unknown = await migrate(context, "pods.metrics.k8s.io").catch((thrown: unknown) => thrown);
  t.ok(error instanceof WaitingForOthers, String(error));
  t.ok(clock.monotonic() < 60_000, `after ${clock.monotonic()} ms`);
});
