import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { type SettleOptions, settle } from "../../src/apiservers/settle-wait.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const SETTLE_MS = 60_000;
/** The times of the API are cut to the second, so a second more is waited for. */
const CUT_MS = 1_000;
const NOW = Date.parse("2026-01-01T12:00:00Z");
const { signal } = new AbortController();

interface Case extends Partial<Omit<SettleOptions, "apiServers">> {
  readonly name: string;
  /** How long ago spec.versions changed; `undefined` where nobody owns it. */
  readonly changedMsAgo?: number | undefined;
  /** How far each API server's clock is ahead. @default one that is right */
  readonly skewsMs?: readonly number[];
  readonly waitsMs: number;
}

const HOUR = 3_600_000;
const cases: readonly Case[] = [
  { name: "nothing when all lies long back", changedMsAgo: HOUR, waitsMs: 0 },
  { name: "from the first sight after a change", changedMsAgo: 20_000, waitsMs: SETTLE_MS + CUT_MS },
  {
    name: "nothing after a change an hour ago by the slowest clock",
    changedMsAgo: HOUR,
    skewsMs: [0, -HOUR / 2],
    waitsMs: 0,
  },
  { name: "from now on when nobody owns spec.versions", waitsMs: SETTLE_MS + CUT_MS },
  {
    name: "from the first sight of a new join",
    changedMsAgo: HOUR,
    newestJoin: NOW - 10_000,
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from now on when an API server was silent or behind",
    changedMsAgo: HOUR,
    lagged: true,
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from the first sight at the latest when a join is stamped ahead",
    changedMsAgo: HOUR,
    newestJoin: NOW + 8 * HOUR,
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from the first sight at the latest when spec.versions is stamped ahead",
    changedMsAgo: -24 * HOUR,
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from the first sight at the latest when a clock is hours behind",
    changedMsAgo: 600_000,
    skewsMs: [0, -2 * HOUR],
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from the first sight where a clock was ten minutes behind when it stamped the change, and is right now",
    changedMsAgo: 605_000,
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from the first sight where the Date of the only API server, or of a proxy, is hours ahead",
    changedMsAgo: 2_000,
    skewsMs: [2 * HOUR],
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "from now on when an API server lagged whose clock is hours ahead",
    changedMsAgo: 24 * HOUR,
    lagged: true,
    skewsMs: [2 * HOUR],
    waitsMs: SETTLE_MS + CUT_MS,
  },
  {
    name: "by the slowest clock",
    changedMsAgo: SETTLE_MS + 905_000,
    skewsMs: [0, -7_000, 3_000],
    waitsMs: SETTLE_MS + CUT_MS,
  },
];

for (const { name, changedMsAgo, skewsMs = [0], waitsMs, ...options } of cases) {
  await tap.test(`Settle counts from the newest of: settle() waits ${name}`, async (t) => {
    const run = runAt(changedMsAgo === undefined ? crdWith() : changedAt(NOW - changedMsAgo));
    const apiServers = skewsMs.map((skew) => run.apiServer(skew));
    await settle(run.context, { crdName: "widgets.example.com", lagged: false, ...options, apiServers });
    t.equal(run.clock.monotonic(), waitsMs);
    t.equal(run.events.length, waitsMs === 0 ? 0 : 1, "it says so");
  });
}

await tap.test("settle() of a built-in resource waits from when an API server last showed another hash", async (t) => {
  for (const lagged of [true, false]) {
    const run = runAt(crdWith());
    await settle(run.context, { lagged, apiServers: [run.apiServer(0)] });
    t.equal(run.clock.monotonic(), lagged ? SETTLE_MS + CUT_MS : 0);
    t.ok(run.paths.every((path) => path === "/version"));
  }
});

await tap.test("settle() goes on waiting where spec.versions changed while it waited", async (t) => {
  const run = runAt(changedAt(NOW - 20_000), changedAt(NOW + 30_000));
  await settle(run.context, { crdName: "widgets.example.com", lagged: false, apiServers: [run.apiServer(0)] });
  t.equal(run.clock.monotonic(), 2 * (SETTLE_MS + CUT_MS), "counted from its first sight");
  t.equal(run.events.length, 2);
});

await tap.test(
  "settle() counts a later change from its own first sight, also where its time is the same",
  async (t) => {
    const ahead = changedAt(NOW + 8 * HOUR);
    const later = { ...ahead, metadata: { ...ahead.metadata, generation: (ahead.metadata.generation ?? 0) + 1 } };
    const run = runAt(ahead, later);
    await settle(run.context, { crdName: "widgets.example.com", lagged: false, apiServers: [run.apiServer(0)] });
    t.equal(run.clock.monotonic(), 2 * (SETTLE_MS + CUT_MS), "seen when the first wait was over");
  },
);

await tap.test(
  "settle() waits from the first sight of a change of the conversion alone, but not of a caBundle",
  async (t) => {
    for (const [conversion, waitsMs] of [
      [{ "f:strategy": {} }, SETTLE_MS + CUT_MS],
      [{ "f:webhook": { "f:clientConfig": { "f:caBundle": {} } } }, 0],
    ] as const) {
      const crd = changedAt(NOW - HOUR);
      const time = new Date(NOW - 20_000).toISOString();
      const entry = { manager: "operator", time, fieldsV1: { "f:spec": { "f:conversion": conversion } } };
      const managedFields = [...(crd.metadata.managedFields ?? []), entry];
      const run = runAt({ ...crd, metadata: { ...crd.metadata, managedFields } });
      await settle(run.context, { crdName: "widgets.example.com", lagged: false, apiServers: [run.apiServer(0)] });
      t.equal(run.clock.monotonic(), waitsMs);
    }
  },
);

function changedAt(time: number): CustomResourceDefinition {
  const entry = {
    manager: "kubectl",
    time: new Date(time).toISOString(),
    fieldsV1: { "f:spec": { "f:versions": {} } },
  };
  return crdWith({ metadata: { creationTimestamp: "2020-01-01T00:00:00Z", managedFields: [entry] } });
}

/** A run whose API servers show each of `crds` in turn, the last one from then on. */
function runAt(...crds: readonly CustomResourceDefinition[]) {
  const clock = new FakeClock(NOW);
  const queue = [...crds];
  const events: MigrationEvent[] = [];
  const paths: string[] = [];
  const apiServer = (skewMs: number): ApiClient => {
    const request = ({ path }: { path: string }): Promise<unknown> => {
      paths.push(path);
      const serverTime = clock.now() + skewMs;
      if (path === "/version") return Promise.resolve({ body: { gitVersion: "v1.36.3" }, serverTime });
      return Promise.resolve({ body: queue.length > 1 ? queue.shift() : queue[0], serverTime });
    };
    return { transport: { request } } as unknown as ApiClient;
  };
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const emit = (event: MigrationEvent): void => void events.push(event);
  const context = {
    clock,
    retrier,
    signal,
    emit,
    options: { settleMs: SETTLE_MS, convergenceTimeoutMs: HOUR },
  } as unknown as RunContext;
  return { clock, events, paths, apiServer, context };
}
