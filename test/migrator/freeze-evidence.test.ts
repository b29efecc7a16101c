import tap from "tap";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { FreezeEvidence } from "../../src/migrator/freeze-evidence.ts";
import type { RunContext } from "../../src/migrator/run-context.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { RunBudget } from "../../src/retry/run-budget.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const MAX_FREEZE_IDLE_MS = 300_000;

/** Evidence of one API server, to which every request fails so, with time limits of ten minutes. */
function evidenceOf(failure: Error) {
  return evidenceWith(async () => {
    throw failure;
  });
}

/** The same, of one that answers so. */
function evidenceWith(request: () => Promise<unknown>) {
  const clock = new FakeClock();
  const budget = new RunBudget();
  const seen = { differences: 0 };
  const transport = { server: "https://a", request, close: async () => undefined };
  const client = new ApiClient(transport as unknown as Transport);
  const apiServers: ApiServers = { mode: "each", clients: [client], identities: ["a"] };
  const context = {
    budget,
    client,
    clock,
    emit: () => undefined,
    findApiServers: async () => apiServers,
    options: { proofTimeoutMs: 600_000, convergenceTimeoutMs: 600_000, settleMs: 1_000 },
    retrier: new Retrier({ clock, random: () => 0.5, budget, maxFreezeIdleMs: MAX_FREEZE_IDLE_MS }),
    signal: new AbortController().signal,
  } as unknown as RunContext;
  const proof = { crdName: "widgets.example.com", guard: { kind: "webhook", name: "guard" } as const };
  const evidence = new FreezeEvidence(context, proof, undefined, () => void seen.differences++);
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

await tap.test("FreezeEvidence tells of another storage version also where the question then fails", async (t) => {
  let asked = 0;
  const run = evidenceWith(async () => {
    if (asked++ > 0) throw unavailable;
    return { status: 200, body: { kind: "APIResourceList", groupVersion: "example.com/v2", resources: [OLD_HASH] } };
  });
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), { name: "WaitingForOthers" });
  t.equal(run.seen.differences, 1);
});

await tap.test("FreezeEvidence takes failed requests for no other storage version", async (t) => {
  const run = evidenceOf(unavailable);
  await t.rejects(run.evidence.settle(run.apiServers, false, crdWith()), { name: "WaitingForOthers" });
  t.equal(run.seen.differences, 0);
});
