import pino from "pino";
import tap from "tap";
import { SecretSource } from "../../src/certs/secret-source.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { followSuspendMark } from "../../src/suspend/suspend-mark.ts";
import { ObjectKeeper } from "../../src/webhook/object-keeper.ts";
import { sendJson, sendStatus, startServer } from "./local-server.ts";

interface Parts {
  readonly client: ApiClient;
  readonly logger: pino.Logger;
  readonly signal: AbortSignal;
}

const SECRET = { kind: "Secret", metadata: { name: "s", namespace: "ns", uid: "u", resourceVersion: "1" }, data: {} };

const followers: Readonly<Record<string, (parts: Parts) => Promise<void>>> = {
  "the keeper of a configuration": ({ client, logger, signal }) =>
    new ObjectKeeper({
      client,
      clock: systemClock,
      logger,
      resource: CRDS,
      name: "x",
      wanted: () => undefined,
      replacement: () => ({}),
    }).run(signal),
  "the mark that suspends all migrations": ({ client, logger, signal }) =>
    followSuspendMark({
      client,
      clock: systemClock,
      namespace: "ns",
      onMark: () => undefined,
      onError: (error) => logger.warn({ reason: String(error) }, "the mark cannot be followed"),
      signal,
    }),
  "the Secret of the serving certificate": ({ client, logger, signal }) =>
    new SecretSource({ client, logger, ref: { namespace: "ns", name: "s" } } as never).run(signal),
};

// A stand-in: a real API server answers to watches where it answers to lists; a proxy before it may not.
for (const [what, follow] of Object.entries(followers)) {
  await tap.test(`a watch that fails while reads work is logged: ${what}`, async (t) => {
    const server = await startServer(t, ({ path, query }, response) => {
      if (query.get("watch") !== null) {
        return sendStatus(response, 503, { message: "no upgrade" });
      }
      const list = { kind: "List", metadata: { resourceVersion: "1" }, items: [] };
      return sendJson(response, 200, path.endsWith("/secrets/s") ? SECRET : list);
    });
    const lines: string[] = [];
    const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
    const stop = new AbortController();
    const ended = follow({ client: new ApiClient(server.transport()), logger, signal: stop.signal });
    const startedAt = performance.now();
    while (!lines.some((line) => line.includes("no upgrade")) && performance.now() - startedAt < 15_000) {
      await systemClock.sleep(20);
    }
    t.match(lines.join(""), /no upgrade/);
    stop.abort(new Error("the test is over"));
    await ended.catch(() => undefined);
  });
}
