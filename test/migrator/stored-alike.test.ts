import tap, { type Test } from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { assertStoredAlike } from "../../src/migrator/stored-alike.ts";
import { Pacer } from "../../src/retry/pacer.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { sendJson, sendStatus, startServer } from "../kube/local-server.ts";

// The servers are local: when a real API server stores an object otherwise cannot be chosen (test/integration/stored-otherwise.test.ts has one with
// another encryption key).

interface Stored {
  resourceVersion: number;
  by: string;
  label: number;
}

/** What an API server makes of a write that changes nothing. */
type Writes = (stored: Stored) => "stored anew" | "as it was" | "refused" | "changed by admission";

function objectOf(name: string, { label, resourceVersion }: Stored) {
  const [uid, creationTimestamp] = [`uid-${name}`, "2026-01-01T00:00:00Z"];
  const managedFields = [{ manager: "user", operation: "Update", apiVersion: "example.com/v2" }];
  const version = { uid, resourceVersion: String(resourceVersion), creationTimestamp };
  const metadata = { name, namespace: "ns", ...version, labels: { label: String(label) }, managedFields };
  return { apiVersion: "meta.k8s.io/v1", kind: "PartialObjectMetadata", metadata };
}

/** Asks two API servers over the same objects, each of which stores them in its own way. */
async function ask(
  t: Test,
  { count = 1, ...how }: { readonly first: Writes; readonly second: Writes; count?: number },
) {
  const objects = new Map<string, Stored>();
  for (let index = 0; index < count; index++) objects.set(`w${index}`, { resourceVersion: 10, by: "first", label: 0 });
  const writes: string[] = [];
  const serve = (by: "first" | "second") =>
    startServer(t, ({ body, method, path }, response) => {
      const name = path.split("/").at(-1) ?? "";
      const stored = objects.get(name);
      if (method === "GET" || stored === undefined) {
        const items = [...objects].map(([each, state]) => objectOf(each, state));
        sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "99" }, items });
        return;
      }
      const { metadata } = body as { metadata: { resourceVersion: string } };
      if (metadata.resourceVersion !== String(stored.resourceVersion)) {
        sendStatus(response, 409, { reason: "Conflict", details: { name } });
        return;
      }
      const outcome = how[by](stored);
      writes.push(`${name} through the ${by}: ${outcome}`);
      if (outcome === "refused") {
        sendStatus(response, 422, { reason: "Invalid", details: { name } });
        return;
      }
      if (outcome !== "as it was") Object.assign(stored, { by, resourceVersion: stored.resourceVersion + 1 });
      if (outcome === "changed by admission") stored.label++;
      sendJson(response, 200, objectOf(name, stored));
    });
  const clock = new FakeClock();
  const clients = [await serve("first"), await serve("second")].map((server) => new ApiClient(server.transport()));
  const told: string[] = [];
  const context = {
    client: clients[0],
    clock,
    options: { settleMs: 1_000 },
    pacer: new Pacer({ clock, maxInFlight: 4, maxQps: Number.POSITIVE_INFINITY }),
    retrier: new Retrier({ clock, random: () => 0.5 }),
    seen: { noting: (name: string) => ({ onLag: () => told.push(name) }) },
    signal: new AbortController().signal,
  } as unknown as RunContext;
  const [apiServers, fence] = [{ mode: "each", clients } as const, async () => undefined];
  const error = await assertStoredAlike(context, { crd: crdWith(), apiServers, fence, objectsSeen: undefined }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return { error, told, writes };
}

const asItWas: Writes = () => "as it was";
const inAnotherVersion =
  (own: string): Writes =>
  ({ by }) =>
    by === own ? "as it was" : "stored anew";

await tap.test(
  "an API server that stores an object otherwise than the one that wrote it last makes the run begin again",
  async (t) => {
    const { error, told, writes } = await ask(t, { first: asItWas, second: inAnotherVersion("second") });
    t.ok(error instanceof StartAgain);
    t.match(error, {
      code: "NotConverged",
      message: /^Cannot prune storedVersions of "widgets\.example\.com": \S+ stores an object otherwise/,
    });
    t.same(told, ["widgets.example.com"], "the next attempt waits for late writes");
    t.same(writes, [
      "w0 through the first: as it was",
      "w0 through the second: stored anew",
      "w0 through the second: as it was",
    ]);
  },
);

await tap.test("one that has followed since it wrote the object itself does, too", async (t) => {
  let isFirst = true;
  const followed = await ask(t, {
    first: () => (isFirst ? ((isFirst = false), "stored anew") : "as it was"),
    second: asItWas,
  });
  t.ok(followed.error instanceof StartAgain);
});

await tap.test("negative control: API servers that store it alike are asked twice, and nothing is wrong", async (t) => {
  const { error, told, writes } = await ask(t, { first: asItWas, second: asItWas, count: 3 });
  t.equal(error, undefined);
  t.same(told, []);
  t.equal(writes.length, 6);
});

for (const outcome of ["stored anew", "refused", "changed by admission"] as const) {
  await tap.test(`an object that is ${outcome} by every write tells nothing`, async (t) => {
    const { error, told } = await ask(t, { first: asItWas, second: () => outcome });
    t.equal(error, undefined);
    t.same(told, []);
  });
}
