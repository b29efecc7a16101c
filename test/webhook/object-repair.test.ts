import { pino } from "pino";
import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { ApiClient, type KubeObject } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { ObjectRepair } from "../../src/webhook/object-repair.ts";
import { webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";
import { ManualClock } from "../manual-clock.ts";

const WANTED = webhookConfigurationOf({ clientConfig: { url: "https://webhook.example.com/validate" } });
const { signal } = new AbortController();

/** One keeper beside a stand-in for an API server, whose object is what the test says. */
function keeping() {
  const clock = new ManualClock();
  const server: { live: KubeObject | undefined; writes: number } = { live: { ...WANTED }, writes: 0 };
  const request = async ({ method, path, body }: ApiRequest): Promise<unknown> => {
    if (method === "PATCH") {
      server.writes++;
      const { metadata, ...rest } = body as KubeObject;
      server.live = { ...rest, metadata: { ...metadata, resourceVersion: String(server.writes) } };
    }
    if (server.live === undefined) {
      const answer = { kind: "Status", reason: "NotFound", details: { name: WEBHOOK_NAME } } as const;
      throw new ApiError(`${method} ${path}`, 404, { answer });
    }
    return { status: 200, body: server.live, serverTime: clock.now() };
  };
  const repair = new ObjectRepair({
    client: new ApiClient({ server: "https://a", request } as unknown as Transport),
    clock,
    logger: pino({ level: "silent" }),
    resource: WEBHOOK_CONFIGURATIONS,
    name: WEBHOOK_NAME,
    wanted: () => WANTED,
    replacement: () => ({}),
  });
  return { clock, server, look: () => repair.once(signal), isRight: (live: KubeObject) => repair.isRight(live) };
}

await tap.test("an object that was changed is restored at once", async (t) => {
  const { look, server } = keeping();
  server.live = { metadata: { name: WEBHOOK_NAME } };
  await look();
  t.equal(server.writes, 1);
});

await tap.test("an object that was deleted is restored five seconds later, and not before", async (t) => {
  const { clock, look, server } = keeping();
  await look();
  server.live = undefined;
  t.equal(await look(), 5_000, "it looks again then");
  await clock.advance(4_000);
  t.equal(await look(), 1_000);
  t.equal(server.writes, 0, "what uninstalls ksvm deletes the roles in that time, or stops the replica");
  await clock.advance(1_000);
  await look();
  t.equal(server.writes, 1);
  t.equal(await look(), Number.POSITIVE_INFINITY, "it is as it is wanted");
});

await tap.test("an object that a keeper finds missing at its start is created five seconds later", async (t) => {
  const { clock, look, server } = keeping();
  server.live = undefined;
  t.equal(await look(), 5_000, "what installs ksvm may be about to create it");
  await clock.advance(5_000);
  await look();
  t.equal(server.writes, 1);
});

await tap.test("how long an object is missing counts from its last deletion", async (t) => {
  const { clock, isRight, look, server } = keeping();
  server.live = undefined;
  await look();
  await clock.advance(3_000);
  // Nobody looks: the watch shows it.
  t.ok(isRight(WANTED));
  await clock.advance(1_000);
  t.equal(await look(), 5_000);
  await clock.advance(3_000);
  server.live = { ...WANTED };
  await look();
  server.live = undefined;
  t.equal(await look(), 5_000);
  t.equal(server.writes, 0);
});
