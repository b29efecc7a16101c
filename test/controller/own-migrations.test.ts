import pino from "pino";
import tap from "tap";
import { ownMigrations } from "../../src/controller/own-migrations.ts";
import { MIGRATOR_CLUSTER_ROLE } from "../../src/migrations/crd-owner.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { FakeClock } from "../fake-clock.ts";

// A stand-in: a real API server would have to have stored what it refuses.
await tap.test("ownMigrations() says which migrations it changed, and which it could not", async (t) => {
  const ownerReferences = [{ apiVersion: "v1", kind: "ClusterRole", name: MIGRATOR_CLUSTER_ROLE, uid: "role" }];
  for (const { refused, words } of [
    {
      refused: ["b"],
      words: [
        { changed: 1, msg: /^Made the CRD the owner/ },
        { level: 40, refused: ["b"], msg: /^Cannot make/ },
      ],
    },
    { refused: ["a", "b"], words: [{ refused: ["a", "b"], msg: /^Cannot make/ }] },
    { refused: [], words: [{ changed: 2, msg: /^Made the CRD the owner/ }] },
  ]) {
    const client = {
      get: () => Promise.resolve({ metadata: { name: "crd", uid: "u" } }),
      listMetadata: () =>
        Promise.resolve({
          items: ["a", "b"].map((name) => ({ metadata: { name, uid: name, ownerReferences } })),
          metadata: {},
        }),
      patch: async (_: unknown, { name }: { name: string }) => {
        if (refused.includes(name)) throw new ApiError("PATCH", 422, { answer: { kind: "Status", reason: "Invalid" } });
      },
    } as unknown as ApiClient;
    const lines: unknown[] = [];
    const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
    const { signal } = new AbortController();
    await ownMigrations({ client, clock: new FakeClock(), logger, random: () => 0.5, signal });
    t.equal(lines.length, words.length);
    t.match(lines, words);
  }
});

// A stand-in: a real API server cannot be made to answer 503 for a while on demand.
await tap.test("ownMigrations() says that it waits for an outage, and when that is over", async (t) => {
  let gets = 0;
  const client = {
    get: async () => {
      gets++;
      if (gets < 4) throw new ApiError("GET crd", 503, { text: "later" });
      return { metadata: { name: "crd", uid: "u" } };
    },
    listMetadata: () => Promise.resolve({ items: [], metadata: {} }),
  } as unknown as ApiClient;
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const { signal } = new AbortController();
  await ownMigrations({ client, clock: new FakeClock(), logger, random: () => 0.5, signal });
  t.equal(gets, 4);
  t.match(lines[0], /Cannot see whether a ClusterRole owns migrations; trying again/);
  t.match(lines[0], /503/);
  t.match(lines.at(-1), /Reading the owners of migrations again/);
  t.equal(lines.length, 2, "not one for each try");
});
