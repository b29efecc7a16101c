import tap from "tap";
import { FREEZE_REASON, MIGRATING_ANNOTATION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import { type AskResult, askAll } from "../../src/apiservers/ask-all.ts";
import { freezeCheck, freezeNotProven, proveFreeze } from "../../src/freeze/freeze-proof.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { startServer } from "../kube/local-server.ts";

const { signal } = new AbortController();
const guard = { kind: "policy", name: "ksvm-widgets" } as const;

/** An API server that shows the annotation for the first `frozenReads` reads and accepts every dry-run. */
function clientOf(server: string, frozenReads: number): ApiClient & { readonly reads: () => number } {
  let reads = 0;
  const annotations = { [MIGRATING_ANNOTATION]: "true" };
  return {
    transport: { server },
    reads: () => reads,
    get: async () => crdWith(++reads > frozenReads ? {} : { metadata: { annotations } }),
    patch: async () => ({}),
  } as unknown as ApiClient & { readonly reads: () => number };
}

await tap.test(
  "a freeze that is lifted while it is being proven ends the proof with FreezeLifted at once",
  async (t) => {
    const clock = new FakeClock();
    const lifted = clientOf("a", 3);
    const other = clientOf("b", Number.POSITIVE_INFINITY);
    const proof = { crdName: "widgets.example.com", guard, signal };
    const proving = askAll({ mode: "each", clients: [lifted, other] }, freezeCheck(proof), {
      clock,
      signal,
      spreadMs: 0,
      timeoutMs: 30_000,
      errorOf: (server, reason) => freezeNotProven(proof, server, reason),
    });
    await t.rejects(proving, { code: "FreezeLifted", message: /another client lifted the freeze/ });
    t.equal(lifted.reads(), 4);
    t.ok(clock.monotonic() < 5_000, "long before the time for the proof is up");
    const asked = other.reads();
    await clock.sleep(1_000);
    await clock.sleep(1_000);
    t.ok(other.reads() <= asked + 1, "nobody goes on asking");
  },
);

/** An API server that shows the frozen CRD and answers no dry-run, and `/version` where `lives`. */
function hangingClient(clock: FakeClock, lives: () => boolean): ApiClient {
  const silence = (): never => {
    clock.advance(15_000);
    throw new TransportError("PATCH x", "a", new Error("the time is up"));
  };
  return {
    transport: { server: "a", request: async () => (lives() ? { body: {} } : silence()) },
    get: async () => crdWith({ metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } }),
    patch: async () => silence(),
  } as unknown as ApiClient;
}

await tap.test("an API server is silent only where it answers nothing else than the dry-runs either", async (t) => {
  const proof = { crdName: "widgets.example.com", guard, signal };
  const prove = async (lives: () => boolean): Promise<AskResult> => {
    const clock = new FakeClock();
    return await askAll({ mode: "each", clients: [hangingClient(clock, lives)] }, freezeCheck(proof), {
      clock,
      signal,
      spreadMs: 0,
      timeoutMs: 30_000,
      errorOf: (server, reason, silent) => freezeNotProven(proof, server, silent ? "SILENT" : reason),
    });
  };
  await t.rejects(
    prove(() => true),
    { code: "FreezeNotProven", message: /an admission webhook may hang/ },
  );
  await t.rejects(
    prove(() => false),
    { code: "FreezeNotProven", message: /SILENT/ },
  );
  const seen = await proveFreeze(
    hangingClient(new FakeClock(), () => true),
    proof,
  );
  t.match(seen, { silent: true, lives: true }, "a late write may be under way on it all the same: settling counts it");
});

await tap.test("a dry-run has time for several admission webhooks that hang one after the other", async (t) => {
  const crd = crdWith({ metadata: { annotations: { [MIGRATING_ANNOTATION]: "true" } } });
  const server = await startServer(t, (request, response) => {
    setTimeout(() => response.end(JSON.stringify(crd)), request.method === "PATCH" ? 5_000 : 0);
  });
  const client = new ApiClient(server.transport({ timeoutMs: 3_000 }));
  const result = await proveFreeze(client, { crdName: crd.metadata.name, guard, signal });
  t.match(result, { proven: false, reason: "a dry-run of a storage change was accepted" }, "it was answered");
});

const DENIED = `customresourcedefinitions.apiextensions.k8s.io "widgets.example.com" is forbidden: `;
const byPolicy = (name: string): string =>
  `${DENIED}ValidatingAdmissionPolicy '${name}' with binding '${name}' denied request: ${FREEZE_REASON}: it is frozen`;
const refusal = (status: number, message: string): ApiError =>
  new ApiError("PATCH x", status, { answer: { kind: "Status", reason: "Forbidden", message } });

for (const [what, error, isProof] of [
  ["its guard denies", refusal(422, byPolicy(guard.name)), true],
  ["another policy denies", refusal(422, byPolicy("others")), false],
  ["its guard denies for another reason", refusal(422, byPolicy(guard.name).replace(FREEZE_REASON, "Other")), false],
  [
    "a webhook denies in the words of its guard",
    refusal(403, `admission webhook "x" denied: ${byPolicy(guard.name)}`),
    false,
  ],
  ["the authorizer refuses", refusal(403, `${DENIED}User "a" cannot patch resource "x"`), false],
  ["the API server is busy", refusal(429, "too many requests"), false],
  ["a balancer answers 404", new ApiError("PATCH x", 404, { text: "<html></html>" }), false],
  ["no answer comes", new TransportError("PATCH x", "a", new Error("reset")), false],
] as const) {
  await tap.test(`proveFreeze() ${isProof ? "takes it for proof" : "proves nothing"} where ${what}`, async (t) => {
    const annotations = { [MIGRATING_ANNOTATION]: "true" };
    let writes = 0;
    const client = {
      transport: { server: "a", request: async () => ({ body: {} }) },
      get: async () => crdWith({ metadata: { annotations } }),
      // The change of the storage version comes first, and that of a label after it.
      patch: async () => {
        if (writes++ === 0) throw error;
        return {};
      },
    } as unknown as ApiClient;
    const { proven } = await proveFreeze(client, { crdName: "widgets.example.com", guard, signal });
    t.equal(proven, isProof);
    t.equal(writes, isProof ? 2 : 1);
  });
}
