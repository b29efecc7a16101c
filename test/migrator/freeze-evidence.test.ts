import tap from "tap";
import { type Arrivals, UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { SettledChanges } from "../../src/apiservers/settled-changes.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import { storageVersionHashOf } from "../../src/api/crd.ts";
import { FREEZE_REASON, MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { collectionPath, CRDS } from "../../src/kube/resources.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { FreezeEvidence } from "../../src/migrator/freeze-evidence.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { RunBudget } from "../../src/retry/run-budget.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const CRD_PATH = collectionPath(CRDS);
const MAX_FREEZE_IDLE_MS = 300_000;

/** Evidence of one API server, to which every request fails so, with time limits of ten minutes. */
function evidenceOf(failure: Error) {
  return evidenceWith(async () => {
    throw failure;
  });
}

/** The same, of one that answers so. */
function evidenceWith(
  request: (request: ApiRequest) => Promise<unknown>,
  clock = new FakeClock(),
  onDifference = async (): Promise<void> => undefined,
  given: {
    readonly arrivals?: Arrivals;
    readonly restarts?: ServerRestarts | undefined;
    readonly settled?: SettledChanges;
    readonly seen?: SeenServers;
    /** Those that a user takes for gone, as they are at each look. */
    readonly ignored?: () => readonly string[];
    /** The API server that the run reads and writes through. @default the one that was found */
    readonly own?: (request: ApiRequest) => Promise<unknown>;
    readonly signal?: AbortSignal;
  } = {},
) {
  const budget = new RunBudget();
  const seen: { differences: number; apiServices: readonly object[] } = { differences: 0, apiServices: [] };
  const listed =
    (answer: typeof request) =>
    async (asked: ApiRequest): Promise<unknown> =>
      asked.path === "/apis/apiregistration.k8s.io/v1/apiservices"
        ? { status: 200, body: { kind: "APIServiceList", metadata: { resourceVersion: "1" }, items: seen.apiServices } }
        : answer(asked);
  const transport = { server: "https://a", request: listed(request), close: async () => undefined };
  const found = new ApiClient(transport as unknown as Transport);
  const through = { ...transport, server: "https://own", request: listed(given.own ?? request) };
  const client = given.own === undefined ? found : new ApiClient(through as unknown as Transport);
  const apiServers: ApiServers = { mode: "each", clients: [found], identities: ["a"] };
  const context = {
    arrivals: given.arrivals ?? UNSEEN_ARRIVALS,
    settled: given.settled,
    seen: given.seen,
    budget,
    client,
    clock,
    emit: () => undefined,
    findApiServers: async () => ({ ...apiServers, ignored: given.ignored?.() ?? [] }),
    options: {
      proofTimeoutMs: 600_000,
      convergenceTimeoutMs: 600_000,
      settleMs: 1_000,
      maxFreezeIdleMs: MAX_FREEZE_IDLE_MS,
    },
    retrier: new Retrier({ clock, random: () => 0.5, budget, maxFreezeIdleMs: MAX_FREEZE_IDLE_MS }),
    signal: given.signal ?? new AbortController().signal,
  } as unknown as RunContext;
  const proof = { crdName: "widgets.example.com", guard: { kind: "webhook", name: "guard" } as const };
  const evidence = new FreezeEvidence(context, proof, given.restarts, () => {
    seen.differences++;
    return onDifference();
  });
  return { apiServers, budget, clock, evidence, seen };
}

const unavailable = new ApiError("GET /x", 503, { answer: { kind: "Status", message: "later" } });

type Run = ReturnType<typeof evidenceOf>;
const questions: readonly (readonly [what: string, ask: (run: Run) => Promise<void>])[] = [
  ["the proof", async ({ evidence }) => void (await evidence.prove())],
  ["convergence", ({ apiServers, evidence }) => evidence.settle(apiServers, false, crdWith())],
];

for (const [what, ask] of questions) {
  await tap.test(`FreezeEvidence lifts a freeze where requests of ${what} fail for too long`, async (t) => {
    const run = evidenceOf(unavailable);
    await t.rejects(ask(run), { name: "WaitingForOthers", message: /503|later/ });
    t.ok(run.clock.monotonic() <= MAX_FREEZE_IDLE_MS + 1_000, `${run.clock.monotonic()} ms`);
    t.ok(run.budget.frozenMs >= MAX_FREEZE_IDLE_MS, "it counts against the budget of the run");
  });

  await tap.test(`FreezeEvidence counts what a freeze was held before against ${what}`, async (t) => {
    const run = evidenceOf(unavailable);
    run.clock.advance(280_000);
    run.budget.heldFreeze(0, 280_000);
    await t.rejects(ask(run), { name: "WaitingForOthers" });
    t.ok(run.clock.monotonic() <= 280_000 + 21_000, "20 s are left");
  });

  await tap.test(
    `FreezeEvidence waits for all of the time of ${what} where an API server does not answer`,
    async (t) => {
      const run = evidenceOf(new TransportError("GET /x", "https://a", new Error("stop")));
      await t.rejects(ask(run), { name: "MissingApiServer" });
      t.ok(run.clock.monotonic() >= 600_000);
    },
  );
}

for (const [what, ask] of questions) {
  await tap.test(`FreezeEvidence asks the API server that the run goes through, too: ${what}`, async (t) => {
    const asked: string[] = [];
    const noted = (server: string) => async (): Promise<never> => {
      asked.push(server);
      throw unavailable;
    };
    const run = evidenceWith(noted("found"), undefined, undefined, { own: noted("own") });
    await t.rejects(ask(run), { name: "WaitingForOthers" });
    t.ok(asked.includes("found") && asked.includes("own"), asked.slice(0, 4).join(", "));
  });
}

await tap.test("FreezeEvidence ends with its own words where a refusal lasts", async (t) => {
  const denial = {
    kind: "Status" as const,
    reason: "Forbidden",
    message: 'crds is forbidden: User "u" cannot get resource "x"',
  };
  const run = evidenceOf(new ApiError("GET /x", 403, { answer: denial }));
  await t.rejects(run.evidence.prove(), { code: "FreezeNotProven" });
});

const OLD_HASH = {
  name: "widgets",
  kind: "Widget",
  verbs: ["list", "patch"],
  namespaced: true,
  storageVersionHash: "old",
};
const NEW_HASH = storageVersionHashOf("example.com", "v2", "Widget");

/** Whether an API server is asked whether it knows a CRD as it is. */
function isAskedForCrd({ path, query }: ApiRequest): boolean {
  return path === CRD_PATH && query?.["resourceVersion"] !== undefined;
}

/** What it answers. */
function listOf(crd: unknown): object {
  return { kind: "PartialObjectMetadataList", metadata: {}, items: [crd] };
}

await tap.test("FreezeEvidence tells of another storage version also where the question then fails", async (t) => {
  let asked = 0;
  const run = evidenceWith(async (request) => {
    if (isAskedForCrd(request)) return { status: 200, body: listOf(crdWith()) };
    if (asked++ > 0) throw unavailable;
    return { status: 200, body: { kind: "APIResourceList", groupVersion: "example.com/v2", resources: [OLD_HASH] } };
  });
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), { name: "WaitingForOthers" });
  t.equal(run.seen.differences, 1);
});

// One that is behind holds the question for three seconds, and refuses it then.
await tap.test("FreezeEvidence remembers an API server that has not answered where the run ends", async (t) => {
  const [ended, seen] = [new AbortController(), new SeenServers(new FakeClock())];
  const run = evidenceWith(
    (request) => {
      if (isAskedForCrd(request)) ended.abort(new KsvmError("Interrupted", "Ctrl-C"));
      return Promise.reject(unavailable);
    },
    new FakeClock(),
    undefined,
    { seen, signal: ended.signal },
  );
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), { code: "Interrupted" });
  t.ok(seen.mayLateWriteCome("widgets.example.com", 1_000), "it may have been behind");
});

await tap.test("FreezeEvidence goes no further than what another storage version calls for", async (t) => {
  const answer = { kind: "APIResourceList", groupVersion: "example.com/v2", resources: [OLD_HASH] };
  const lost = new KsvmError("OwnershipLost", "another run holds the Lease");
  const seen = new SeenServers(new FakeClock());
  const run = evidenceWith(
    async (request) => ({ status: 200, body: isAskedForCrd(request) ? listOf(crdWith()) : answer }),
    new FakeClock(),
    () => Promise.reject(lost),
    { seen },
  );
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), lost);
  t.equal(run.seen.differences, 1);
  t.ok(seen.lagOf("widgets.example.com"), "it is remembered that one was behind");
});

const TOO_LARGE = {
  kind: "Status" as const,
  reason: "Timeout",
  message: "Timeout: Too large resource version: 7, current: 5",
  details: { causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }] },
};

for (const [what, answer] of [
  [
    "refuses to read",
    (isForNow: boolean) => {
      if (!isForNow) throw new ApiError("GET /x", 504, { answer: TOO_LARGE });
      // It lacks the freeze alone, as far as it can tell.
      return crdWith({ metadata: { resourceVersion: "5" } });
    },
  ],
  ["has an older state of", () => crdWith({ metadata: { resourceVersion: "5" } })],
] as const) {
  await tap.test(`an API server that ${what} the CRD is behind, whatever hash it shows`, async (t) => {
    const time = new Date(0).toISOString();
    const run = evidenceWith(async (request) => ({
      status: 200,
      body: isAskedForCrd(request)
        ? listOf(answer(request.query?.["resourceVersion"] === "0"))
        : answerTo(request, time),
    }));
    const crd = crdWith({ metadata: { resourceVersion: "7" } });
    const message = /its watch of CRDs is at resourceVersion 5, and the CRD is at 7/;
    await t.rejects(run.evidence.settle(run.apiServers, false, crd), { code: "NotConverged", message });
    t.equal(run.seen.differences, 1, "it may have written another version");
  });
}

/** The clock of a machine that was suspended, with the API server on it. */
class SuspendedClock extends FakeClock {
  asleepMs = 0;

  override now(): number {
    return super.now() + this.asleepMs;
  }
}

/** Jumps by 6 s every 1.5 s. */
class JumpingClock extends FakeClock {
  override now(): number {
    return super.now() + Math.floor(this.monotonic() / 1_500) * 6_000;
  }
}

/** An API server that denies a storage change, and shows the storage version. */
function answerTo({ body, method, path }: ApiRequest, time: string): unknown {
  const isStorageChange = JSON.stringify(body ?? "").includes("/spec/versions");
  if (method === "PATCH" && isStorageChange) {
    const message = `admission webhook "guard" denied the request: ${FREEZE_REASON}: no`;
    throw new ApiError("PATCH /x", 403, { answer: { kind: "Status", message } });
  }
  if (path === "/apis/example.com/v2") {
    const resources = [{ ...OLD_HASH, storageVersionHash: NEW_HASH }];
    return { kind: "APIResourceList", groupVersion: "example.com/v2", resources };
  }
  if (path === "/version") return { gitVersion: "v1.36.3" };
  return path === CRD_PATH ? listOf(frozenCrd(time)) : frozenCrd(time);
}

/** Its storage version changed at this time, which is in managedFields. */
function frozenCrd(time: string) {
  const managedFields = [
    { manager: "kubectl", operation: "Update", time, fieldsV1: { "f:spec": { "f:versions": {} } } },
  ];
  return crdWith({
    metadata: { creationTimestamp: time, managedFields, annotations: { [MIGRATING_ANNOTATION]: "true" } },
  });
}

for (const [when, isSuspended] of [
  ["the freeze is proven", ({ method }: ApiRequest) => method === "PATCH"],
  ["API servers are to converge", ({ path }: ApiRequest) => path === "/apis/example.com/v2"],
  ["nothing is asked", () => false],
] as const) {
  await tap.test(`FreezeEvidence has late writes waited for after machines were suspended while ${when}`, async (t) => {
    const clock = new SuspendedClock();
    const time = new Date(clock.now() - 500).toISOString();
    const run = evidenceWith(async (request) => {
      clock.asleepMs = isSuspended(request) ? 3_600_000 : clock.asleepMs;
      return { status: 200, body: answerTo(request, time), serverTime: clock.now() };
    }, clock);
    const { apiServers } = await run.evidence.prove();
    clock.asleepMs = 3_600_000;
    await run.evidence.settle(apiServers, false, frozenCrd(time));
    t.ok(clock.monotonic() >= 1_000, `${clock.monotonic()} ms`);
  });
}

await tap.test("FreezeEvidence holds no freeze beyond its budget where the clock keeps jumping", async (t) => {
  const clock = new JumpingClock();
  const time = new Date(clock.now()).toISOString();
  const run = evidenceWith(
    async (request) => ({ status: 200, body: answerTo(request, time), serverTime: clock.now() }),
    clock,
  );
  run.budget.heldFreeze(-100_000, 0);
  const { apiServers } = await run.evidence.prove();
  await t.rejects(run.evidence.settle(apiServers, false, frozenCrd(time)), { code: "ClockJumps" });
  t.ok(clock.monotonic() <= MAX_FREEZE_IDLE_MS - 100_000, `${clock.monotonic()} ms`);
});

for (const tookMs of [0, 3_600_000]) {
  await tap.test(
    `FreezeEvidence asks again once what another storage version calls for is done: ${tookMs} ms`,
    async (t) => {
      const clock = new FakeClock();
      const changed = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
      const hashes = ["old"];
      const run = evidenceWith(
        async ({ path }) => {
          const isDiscovery = path === "/apis/example.com/v2";
          const storageVersionHash = (isDiscovery && hashes.shift()) || NEW_HASH;
          const resources = [{ ...OLD_HASH, storageVersionHash }];
          const list = { kind: "APIResourceList", groupVersion: "example.com/v2", resources };
          const crd = path === CRD_PATH ? listOf(changed) : changed;
          const other = path === "/version" ? { gitVersion: "v1.36.3" } : crd;
          const body = isDiscovery ? list : other;
          return { status: 200, body, serverTime: clock.now() };
        },
        clock,
        async () => clock.advance(tookMs),
      );
      await run.evidence.settle(run.apiServers, false, changed);
      t.equal(run.seen.differences, 1);
      t.ok(clock.monotonic() >= tookMs + 1_000, "the API server lagged, so late writes are waited for");
    },
  );
}

await tap.test("a forced run does without a wait that an earlier one of the same change has made", async (t) => {
  const clock = new FakeClock();
  const settled = new SettledChanges();
  const times = { change: new Date(clock.now()).toISOString() };
  const wait = async (
    parts: { readonly arrivals?: Arrivals; readonly isForced?: boolean; isBehind?: boolean } = {},
  ) => {
    const { arrivals = UNSEEN_ARRIVALS, isForced = true } = parts;
    const restarts = isForced ? ({ look: async () => 0 } as unknown as ServerRestarts) : undefined;
    const answer = (request: ApiRequest): unknown =>
      parts.isBehind === true && request.path === "/apis/example.com/v2"
        ? { kind: "APIResourceList", groupVersion: "example.com/v2", resources: [OLD_HASH] }
        : answerTo(request, times.change);
    const run = evidenceWith(
      async (request) => ({ status: 200, body: answer(request), serverTime: clock.now() }),
      clock,
      async () => void (parts.isBehind = false),
      { arrivals, restarts, settled },
    );
    const begun = clock.monotonic();
    await run.evidence.settle(run.apiServers, false, frozenCrd(times.change));
    return clock.monotonic() - begun >= 1_000;
  };
  t.equal(await wait(), true, "the first one waits");
  t.equal(await wait(), false);
  t.equal(await wait({ isForced: false }), true, "any other run waits by itself");
  t.equal(await wait({ isBehind: true }), true, "an API server was behind");
  t.equal(await wait({ arrivals: { ...UNSEEN_ARRIVALS, count: 1 } }), true, "an API server came or went");
  t.equal(await wait({ arrivals: { ...UNSEEN_ARRIVALS, count: 1 } }), false);
  times.change = new Date(clock.now()).toISOString();
  t.equal(await wait({ arrivals: { ...UNSEEN_ARRIVALS, count: 1 } }), true, "the CRD was changed again");
});

/** Runs of one process, one after the other, of a CRD that changed long ago. A real API server cannot be told to be behind. */
function processOf(clock = new FakeClock()) {
  const seen = new SeenServers(clock);
  const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
  const server = { isBehind: false, isSilent: false, until: Number.POSITIVE_INFINITY };
  /** @param meanwhile what else happens once the freeze is proven */
  const begin = (meanwhile = (): void => undefined) => {
    const { evidence } = evidenceWith(
      async (request) => {
        if (clock.monotonic() > server.until) Object.assign(server, { isBehind: false, isSilent: false });
        if (server.isSilent) throw new TransportError("GET /x", "https://a", new Error("stop"));
        const isBehind = server.isBehind && request.path === "/apis/example.com/v2";
        const behind = { kind: "APIResourceList", groupVersion: "example.com/v2", resources: [OLD_HASH] };
        const body = isBehind ? behind : answerTo(request, crd.metadata.creationTimestamp ?? "");
        return { status: 200, body, serverTime: clock.now() };
      },
      clock,
      undefined,
      { seen },
    );
    const settle = async (): Promise<number> => {
      const { apiServers, silent } = await evidence.prove();
      const begun = clock.monotonic();
      seen.found();
      const wasSilent = silent || seen.wereSilentWithin(1_000);
      meanwhile();
      await evidence.settle(apiServers, wasSilent, crd);
      return clock.monotonic() - begun;
    };
    return { evidence, settle, repeat: () => evidence.repeat(async () => crd) };
  };
  return { begin, clock, seen, server };
}

await tap.test("FreezeEvidence has the lag that ended a run waited for by the next run of the process", async (t) => {
  const { begin, clock, server } = processOf();
  server.isBehind = true;
  await t.rejects(begin().settle(), {
    code: "NotConverged",
    message: /did not follow within 600 s: .*; once it has followed, wait 1 s before you run it again$/,
  });
  clock.advance(3_600_000);
  server.isBehind = false;
  const next = begin();
  t.ok((await next.settle()) >= 1_000, "it may have followed right before, with a write under way");
  t.ok((await begin().settle()) < 1_000, "once");
});

await tap.test(
  "FreezeEvidence has the silence that ended a run waited for by the next run of the process",
  async (t) => {
    for (const isInProof of [true, false]) {
      const { begin, clock, server } = processOf();
      const first = begin();
      if (!isInProof) await first.settle();
      server.isSilent = true;
      const ended: Promise<unknown> = isInProof ? first.settle() : first.repeat();
      await t.rejects(ended, { code: "ApiServerMissing" });
      clock.advance(3_600_000);
      server.isSilent = false;
      t.ok((await begin().settle()) >= 1_000, "it may have gone on right before");
    }
  },
);

await tap.test("FreezeEvidence has waited for what another run saw since API servers were looked for", async (t) => {
  for (const saw of ["onLag", "onSilence"] as const) {
    const { begin, seen } = processOf();
    const run = begin(() => seen.noting("gadgets.example.com")[saw]());
    t.ok((await run.settle()) >= 1_000, `${saw}: it has followed since, with a write under way`);
  }
});

await tap.test("FreezeEvidence takes none for followed that was behind a later change than the freeze", async (t) => {
  const { begin, clock, seen } = processOf();
  await begin(() => {
    clock.advance(1);
    seen.noting("gadgets.example.com").onLag();
  }).settle();
  clock.advance(3_600_000);
  t.ok(seen.wereSilentWithin(1_000), "the one that has the freeze may have yet to see that change");
  await begin().settle();
  clock.advance(1_001);
  t.notOk(seen.wereSilentWithin(1_000), "a later freeze shows that it has");
});

await tap.test("FreezeEvidence has a lag at the end waited for by the next attempt", async (t) => {
  const { begin, clock, server } = processOf();
  const first = begin();
  t.ok((await first.settle()) < 1_000, "negative control: nothing is waited for");
  Object.assign(server, { isBehind: true, until: clock.monotonic() + 2_000 });
  const end = { name: "StartAgain", message: /fell behind during the run; wait 1 s before/ };
  await t.rejects(first.repeat(), end);
  clock.advance(3_600_000);
  t.ok((await begin().settle()) >= 1_000, "it had a write of the old version under way, perhaps");
});

await tap.test("FreezeEvidence takes failed requests for no other storage version", async (t) => {
  const run = evidenceOf(unavailable);
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), { name: "WaitingForOthers" });
  t.equal(run.seen.differences, 0);
});

const apiServiceAt = (resourceVersion: string) => [{ metadata: { name: "v2.example.com", uid: "u", resourceVersion } }];

await tap.test(
  "FreezeEvidence of a forced run begins again where an API server joined and left in between",
  async (t) => {
    for (const [restarts, isDuringLook] of [
      [undefined, false],
      [new ServerRestarts(), false],
      [new ServerRestarts(), true],
    ] as const) {
      const clock = new FakeClock();
      const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
      const left = { ...UNSEEN_ARRIVALS, newest: "the API server of identity Lease b left" };
      const came = async () => void arrivals.count++;
      const arrivals = { ...left, count: 0, ...(isDuringLook ? {} : { catchUp: came }) };
      const { evidence } = evidenceWith(
        async (request) => ({ status: 200, body: answerTo(request, "2026-01-01T00:00:00Z"), serverTime: clock.now() }),
        clock,
        undefined,
        { arrivals, restarts },
      );
      const { apiServers } = await evidence.prove();
      await evidence.settle(apiServers, false, crd);
      const repeated = evidence.repeat(async () => {
        if (isDuringLook) await came();
        return crd;
      });
      await (restarts === undefined
        ? repeated
        : t.rejects(repeated, { name: "StartAgain", message: /identity Lease b left during the run/ }));
    }
  },
);

await tap.test("FreezeEvidence does not call an API server restarted that was taken for gone and lives", async (t) => {
  const clock = new FakeClock();
  const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
  let ignored = ["b", "c"];
  const { evidence } = evidenceWith(
    async (request) => ({ status: 200, body: answerTo(request, "2026-01-01T00:00:00Z"), serverTime: clock.now() }),
    clock,
    undefined,
    { ignored: () => ignored },
  );
  const { apiServers } = await evidence.prove();
  await evidence.settle(apiServers, false, crd);
  await evidence.repeat(async () => crd);
  ignored = ["b"];
  await t.rejects(
    evidence.repeat(async () => crd),
    { name: "StartAgain", message: /the set of API servers changed/ },
  );
});

await tap.test("FreezeEvidence begins again where an APIService of the group changed during the run", async (t) => {
  const clock = new FakeClock();
  const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
  const run = evidenceWith(
    async (request) => ({ status: 200, body: answerTo(request, "2026-01-01T00:00:00Z"), serverTime: clock.now() }),
    clock,
  );
  run.seen.apiServices = apiServiceAt("5");
  const { apiServers } = await run.evidence.prove();
  await run.evidence.settle(apiServers, false, crd);
  await run.evidence.repeat(async () => crd);
  run.seen.apiServices = apiServiceAt("9");
  await t.rejects(
    run.evidence.repeat(async () => crd),
    { name: "StartAgain", message: /an APIService of its group changed/ },
  );
  run.seen.apiServices = [{ ...apiServiceAt("5")[0], spec: { service: { name: "aggregated" } } }];
  await t.rejects(
    run.evidence.repeat(async () => crd),
    { code: "VersionNotServed" },
  );
});

await tap.test(
  "FreezeEvidence is of the APIServices that there were, so that no attempt resumes what another API server listed",
  async (t) => {
    const clock = new FakeClock();
    const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
    const rested = async (resourceVersion: string): Promise<string> => {
      const run = evidenceWith(
        async (request) => ({ status: 200, body: answerTo(request, "2026-01-01T00:00:00Z"), serverTime: clock.now() }),
        clock,
      );
      run.seen.apiServices = apiServiceAt(resourceVersion);
      const { apiServers } = await run.evidence.prove();
      await run.evidence.settle(apiServers, false, crd);
      return run.evidence.restsOn;
    };
    t.equal(await rested("5"), await rested("5"));
    t.not(await rested("5"), await rested("9"), "one may have handed the group to an aggregated API server in between");
  },
);

await tap.test(
  "FreezeEvidence of a forced run is of another API server where one joined and left between two attempts",
  async (t) => {
    for (const restarts of [undefined, new ServerRestarts()]) {
      const clock = new FakeClock();
      const crd = frozenCrd(new Date(clock.now() - 86_400_000).toISOString());
      const arrivals = { ...UNSEEN_ARRIVALS, count: 0 };
      const rested = async (): Promise<string> => {
        const { evidence } = evidenceWith(
          async (request) => ({
            status: 200,
            body: answerTo(request, "2026-01-01T00:00:00Z"),
            serverTime: clock.now(),
          }),
          clock,
          undefined,
          { arrivals, restarts },
        );
        const { apiServers } = await evidence.prove();
        await evidence.settle(apiServers, false, crd);
        return evidence.restsOn;
      };
      const first = await rested();
      t.equal(await rested(), first);
      arrivals.count += 2;
      t.equal((await rested()) === first, restarts === undefined, "it may have written with another key");
    }
  },
);
