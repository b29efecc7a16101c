import { Readable } from "node:stream";
import tap from "tap";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { ASSUMED, type EncryptionFound, NONE_SHOWN } from "../../src/apiservers/encryption-evidence.ts";
import { KsvmError } from "../../src/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { BuiltInEvidence } from "../../src/migrator/built-in-evidence.ts";
import { changeBetween, type Foundation } from "../../src/migrator/foundation.ts";
import type { MigrationEvent } from "../../src/migrator/events.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { type Arrivals, UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import { StartAgain } from "../../src/retry/start-again.ts";
import {
  disagreementWith,
  type StorageVersionFacts,
  withoutEntriesOf,
} from "../../src/apiservers/storage-version-facts.ts";
import { FakeClock } from "../fake-clock.ts";

const FOUNDATION: Foundation = {
  apiServers: "each https://a 0",
  leases: "a@1",
  restarts: 0,
  arrivals: 1,
  newestArrival: "",
  hash: "h1",
  storageVersion: "u/1",
  crd: "c/1",
  ownApi: "v1.g=s/1",
  encryption: "e1",
};

for (const [field, said] of [
  ["apiServers", /the set of API servers changed/],
  ["leases", /an API server joined, left or restarted/],
  ["restarts", /an API server restarted/],
  ["arrivals", /the API server of identity Lease b left/],
  ["hash", /the storageVersionHash changed from "h1" to "other"/],
  ["storageVersion", /another encoding in the StorageVersion/],
  ["crd", /the CRD changed/],
  ["ownApi", /an APIService of its group changed/],
  ["encryption", /another encryption configuration/],
] as const) {
  await tap.test(`changeBetween() names ${field} where it is another one`, (t) => {
    const other = field === "restarts" || field === "arrivals" ? 9 : "other";
    const newestArrival = "the API server of identity Lease b left";
    t.match(changeBetween(FOUNDATION, { ...FOUNDATION, newestArrival, [field]: other }), said);
    t.equal(changeBetween(FOUNDATION, { ...FOUNDATION }), undefined);
    t.end();
  });
}

const HASH = storageVersionHashOf("apps", "v1", "Deployment");
const FACTS: StorageVersionFacts = {
  key: "u/1",
  common: "apps/v1",
  entries: [{ server: "a", encodingVersion: "apps/v1" }],
};

await tap.test(
  "disagreementWith() takes a StorageVersion that says something else than discovery for a disagreement",
  (t) => {
    const shown = { hash: HASH, kind: "Deployment", identities: ["a"] };
    t.equal(disagreementWith(FACTS, shown), undefined);
    t.match(disagreementWith({ ...FACTS, common: "apps/v1beta2" }, shown), /says "apps\/v1beta2"/);
    t.match(disagreementWith(FACTS, { ...shown, identities: ["a", "b"] }), /no entry of b/);
    t.match(disagreementWith(FACTS, { ...shown, identities: [] }), /entry of a, which has no live identity Lease/);
    const { common: _, ...none } = FACTS;
    t.match(disagreementWith(none, shown), /no commonEncodingVersion/);
    t.end();
  },
);

await tap.test("withoutEntriesOf() leaves an ignored API server out of the comparison", (t) => {
  const { common: _, ...none } = FACTS;
  const old = { server: "gone", encodingVersion: "apps/v1beta2" };
  const facts: StorageVersionFacts = { ...none, entries: [...FACTS.entries, old] };
  const shown = { hash: HASH, kind: "Deployment", identities: ["a"] };
  t.match(disagreementWith(facts, shown), /entry of gone, which has no live identity Lease/);
  t.equal(disagreementWith(withoutEntriesOf(facts, ["gone"]), shown), undefined);
  t.equal(withoutEntriesOf(facts, ["other"]), facts, "nothing is made of what is not ignored");
  const three = { ...facts, entries: [...facts.entries, { ...old, server: "c" }] };
  t.match(disagreementWith(withoutEntriesOf(three, ["gone"]), { ...shown, identities: ["a", "c"] }), /no common/);
  t.end();
});

let metricsRead = 0;
const stream = async (): Promise<Readable> => {
  metricsRead++;
  return Readable.from([Buffer.from("process_start_time_seconds 1\n")]);
};

/** Two API servers; `shown` says what each shows at a time, in milliseconds since the start. */
function setting(
  shown: { readonly a: (ms: number) => string; readonly b: (ms: number) => string },
  clock = new FakeClock(),
  encryption?: (apiServers: ApiServers) => EncryptionFound,
  {
    arrivals = UNSEEN_ARRIVALS,
    seen,
    signal = new AbortController().signal,
  }: { readonly arrivals?: Arrivals; readonly seen?: SeenServers; readonly signal?: AbortSignal } = {},
) {
  const events: MigrationEvent[] = [];
  const clientOf = (server: string, hashAt: (ms: number) => string): ApiClient => {
    const request = async ({ path }: { path: string }): Promise<unknown> => {
      clock.advance(10);
      const storageVersionHash = hashAt(clock.monotonic());
      const list = { kind: "APIResourceList", groupVersion: "apps/v1", items: [] };
      const body =
        path === "/version"
          ? { gitVersion: "v1.36.3" }
          : { ...list, resources: [{ name: "deployments", storageVersionHash }] };
      return { status: 200, body, serverTime: clock.now() };
    };
    return { transport: { server, request, stream }, findIfServed: async () => undefined } as unknown as ApiClient;
  };
  const clients = [clientOf("https://a", shown.a), clientOf("https://b", shown.b)];
  const apiServers: ApiServers = { mode: "each", clients };
  const context = {
    arrivals,
    seen,
    client: clients[0],
    clock,
    emit: (event: MigrationEvent) => events.push(event),
    ...(encryption && {
      encryption: {
        look: async () => ({ ...encryption(apiServers), apiServers, arrivals: 0 }),
        settled: () => undefined,
      },
    }),
    findApiServers: async () => apiServers,
    options: { settleMs: 1_000, convergenceTimeoutMs: 20_000 },
    retrier: new Retrier({ clock, random: () => 0.5 }),
    signal,
  } as unknown as RunContext;
  const resource = { group: "apps", version: "v1", resource: "deployments", kind: "Deployment" };
  return { clock, events, evidence: new BuiltInEvidence(context, { resource, restarts: new ServerRestarts() }) };
}

await tap.test("BuiltInEvidence remembers an API server that has not answered where the run ends", async (t) => {
  const clock = new FakeClock();
  const [ended, seen] = [new AbortController(), new SeenServers(clock)];
  const b = (): never => {
    const interrupted = new KsvmError("Interrupted", "Ctrl-C");
    ended.abort(interrupted);
    throw interrupted;
  };
  const { evidence } = setting({ a: () => "h1", b }, clock, undefined, { seen, signal: ended.signal });
  await t.rejects(evidence.prove(), { code: "Interrupted" });
  t.ok(seen.mayLateWriteCome("deployments.apps", 1_000), "it may have been behind");
});

await tap.test("BuiltInEvidence has late writes waited for after machines were suspended while it looks", async (t) => {
  /** It jumps when the first answers have come. */
  class SuspendedClock extends FakeClock {
    override now(): number {
      return super.now() + (this.monotonic() >= 20 ? 3_600_000 : 0);
    }
  }
  const { clock, evidence } = setting({ a: () => "h1", b: () => "h1" }, new SuspendedClock());
  await evidence.prove();
  t.ok(clock.monotonic() >= 1_000, `${clock.monotonic()} ms`);
});

await tap.test(
  "BuiltInEvidence has late writes waited for since the API servers encrypt alike, and no longer",
  async (t) => {
    const found = { configHash: "c", agreement: "f", fingerprint: "f", since: { at: undefined, seenAt: 0 } };
    const alike = { a: () => "h1", b: () => "h1" };
    const first = setting(alike, new FakeClock(), () => found);
    await first.evidence.prove();
    t.ok(first.clock.monotonic() >= 2_000, `${first.clock.monotonic()} ms`);
    const clock = new FakeClock();
    clock.advance(10_000);
    const later = setting(alike, clock, () => found);
    await later.evidence.prove();
    t.ok(clock.monotonic() < 11_000, "the wait of an earlier resource counts");
  },
);

await tap.test("BuiltInEvidence has waited for what another run saw since API servers were looked for", async (t) => {
  const clock = new FakeClock();
  clock.advance(10_000);
  const seen = new SeenServers(clock);
  const found = { configHash: "c", agreement: "f", fingerprint: "f", since: { at: undefined, seenAt: 0 } };
  const settledFor = async (a: () => string): Promise<number> => {
    const begun = clock.monotonic();
    await setting({ a, b: () => "h1" }, clock, () => found, { seen }).evidence.prove();
    return clock.monotonic() - begun;
  };
  t.ok((await settledFor(() => "h1")) < 1_900, "negative control: the wait of an earlier resource counts");
  const behind = (): string => {
    seen.noting("widgets.example.com").onLag();
    return "h1";
  };
  t.ok((await settledFor(behind)) >= 2_000, "it may have followed since");
});

/** As of a watch that a test has tell what it wants. */
function arrivalsThat(catchUp: () => void) {
  const newest = "the API server of identity Lease b left";
  return { ...UNSEEN_ARRIVALS, newest, catchUp: async () => catchUp() } as {
    -readonly [K in keyof Arrivals]: Arrivals[K];
  };
}

await tap.test("BuiltInEvidence begins again where an API server joined and left between its two looks", async (t) => {
  let left = 0;
  const arrivals = arrivalsThat(() => (arrivals.count += left));
  const { evidence } = setting({ a: () => "h1", b: () => "h1" }, new FakeClock(), undefined, { arrivals });
  await evidence.prove();
  await evidence.repeat();
  left = 1;
  const text =
    'Cannot continue with "deployments.apps": the API server of identity Lease b left during the run; run again';
  await t.rejects(evidence.repeat(), new StartAgain("NotConverged", text));
});

await tap.test("BuiltInEvidence begins again where an API server joined and left during its last look", async (t) => {
  const arrivals = arrivalsThat(() => undefined);
  let isLast = false;
  const b = (): string => {
    if (isLast) arrivals.count = 2;
    return "h1";
  };
  const { evidence } = setting({ a: () => "h1", b }, new FakeClock(), undefined, { arrivals });
  await evidence.prove();
  isLast = true;
  await t.rejects(evidence.repeat(), { name: "StartAgain", message: /identity Lease b left/ });
});

await tap.test("BuiltInEvidence begins again at once where one joined while late writes were waited for", async (t) => {
  const arrivals = arrivalsThat(() => undefined);
  const clock = new FakeClock();
  arrivals.changedAt = 0;
  const { evidence } = setting(
    {
      a: () => "h1",
      b: () => {
        if (clock.monotonic() > 0) setImmediate(() => arrivals.count++);
        return "h1";
      },
    },
    clock,
    undefined,
    { arrivals },
  );
  await t.rejects(evidence.prove(), { name: "StartAgain", message: /identity Lease b left/ });
});

await tap.test("BuiltInEvidence has late writes of an API server waited for that left", async (t) => {
  const arrivals = arrivalsThat(() => undefined);
  const clock = new FakeClock();
  clock.advance(5_000);
  arrivals.changedAt = 4_000;
  const alike = { a: () => "h1", b: () => "h1" };
  const { evidence } = setting(alike, clock, undefined, { arrivals });
  await evidence.prove();
  t.ok(clock.monotonic() >= 6_000, `${clock.monotonic()} ms`);
  const later = new FakeClock();
  later.advance(60_000);
  await setting(alike, later, undefined, { arrivals }).evidence.prove();
  t.ok(later.monotonic() < 61_000, "once");
});

await tap.test("BuiltInEvidence begins again where the API servers encrypt otherwise at the end", async (t) => {
  let agreement = "before";
  const { evidence } = setting({ a: () => "h1", b: () => "h1" }, new FakeClock(), () => ({
    configHash: "c",
    agreement,
    fingerprint: agreement,
    since: { at: undefined, seenAt: 0 },
  }));
  t.equal((await evidence.prove()).encryption, "before");
  agreement = "after";
  await t.rejects(evidence.repeat(), { name: "StartAgain", message: /another encryption configuration/ });
});

for (const [configHash, times] of [
  ["c", 0],
  [ASSUMED, 2],
  [NONE_SHOWN, 2],
] as const) {
  await tap.test(
    `BuiltInEvidence looks for restarts where its encryption does not show them: ${configHash}`,
    async (t) => {
      const since = { at: undefined, seenAt: 0 };
      const found = { configHash, agreement: "a", fingerprint: "a", since };
      const { evidence } = setting({ a: () => "h1", b: () => "h1" }, new FakeClock(), () => found);
      metricsRead = 0;
      await evidence.prove();
      t.equal(metricsRead, times);
    },
  );
}

await tap.test("BuiltInEvidence holds where nothing changed", async (t) => {
  const { evidence, events } = setting({ a: () => "h1", b: () => "h1" });
  const { hash } = await evidence.prove();
  t.equal(hash, "h1");
  await evidence.repeat();
  t.match(events, [{ type: "converged" }]);
});

await tap.test(
  "BuiltInEvidence waits for an API server that shows another hash, and fails with its name",
  async (t) => {
    const { clock, events, evidence } = setting({ a: () => "h1", b: (ms) => (ms < 5_000 ? "h0" : "h1") });
    await evidence.prove();
    t.ok(clock.monotonic() >= 6_000, "and settles from there");
    t.match(events[0], { type: "lagging", server: "https://b", reason: /"h0"/ });
    const never = setting({ a: () => "h1", b: () => "h0" });
    await t.rejects(never.evidence.prove(), { code: "NotConverged", message: /https:\/\/b disagrees/ });
  },
);

await tap.test("BuiltInEvidence has the lag that ended a run waited for by the next run of the process", async (t) => {
  const clock = new FakeClock();
  const seen = new SeenServers(clock);
  // An earlier wait for API servers that came or left holds, and nothing changed since.
  const arrivals = { ...UNSEEN_ARRIVALS, changedAt: 0 };
  const prove = async (b: string): Promise<number> => {
    const { evidence } = setting({ a: () => "h1", b: () => b }, clock, undefined, { arrivals, seen });
    clock.advance(3_600_000);
    const begun = clock.monotonic();
    await evidence.prove();
    return clock.monotonic() - begun;
  };
  t.ok((await prove("h1")) < 1_000, "negative control: nothing is waited for");
  await t.rejects(prove("h0"), { code: "NotConverged" });
  t.ok((await prove("h1")) >= 1_000);
  t.ok((await prove("h1")) < 1_000, "once");
});

await tap.test(
  "BuiltInEvidence begins again where an API server shows another hash at the end, or just did",
  async (t) => {
    let late = false;
    let behind = 0;
    const { evidence } = setting({
      a: () => (late ? "h2" : "h1"),
      b: () => {
        behind--;
        return late ? "h2" : behind > 0 ? "h0" : "h1";
      },
    });
    await evidence.prove();
    behind = 3;
    await t.rejects(
      evidence.repeat(),
      new StartAgain(
        "NotConverged",
        'Cannot continue with "deployments.apps": an API server fell behind during the run; run again',
      ),
    );
    late = true;
    await t.rejects(evidence.repeat(), { name: "StartAgain", message: /changed from "h1" to "h2"/ });
  },
);

await tap.test(
  "BuiltInEvidence is not satisfied by API servers that showed one hash each, one after the other",
  async (t) => {
    // Every request takes 10 ms: "a" is asked before the change of all, "b" after it.
    const { evidence, events } = setting({
      a: (ms) => (ms <= 300 ? "h1" : "h2"),
      b: (ms) => (ms <= 250 ? "h0" : ms <= 300 ? "h1" : "h2"),
    });
    const { hash } = await evidence.prove();
    t.equal(hash, "h2");
    t.ok(events.some(({ type }) => type === "lagging"));
  },
);
