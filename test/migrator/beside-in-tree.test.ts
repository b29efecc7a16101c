import { Readable } from "node:stream";
import tap, { type Test } from "tap";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { besideInTree } from "../../src/migrator/beside-in-tree.ts";
import { InTreeAtWork } from "../../src/in-tree/in-tree-guard.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { ManualClock } from "../manual-clock.ts";

const RUNNING = {
  metadata: { name: "theirs", uid: "u", resourceVersion: "1" },
  spec: { resource: { group: "example.com", resource: "widgets" } },
  status: { conditions: [{ type: "Running", status: "True" }] },
};

/** What an API server says whose credentials check has just started, or that does not serve the group yet. */
const FAILURES = [
  ["401", new ApiError("GET /apis", 401, { text: "Unauthorized" })],
  ["404 of an unserved group", new ApiError("GET /apis", 404, { text: "404 page not found" })],
] as const;

/**
 * Work of `workMs` beside an API server that answers the look at Kubernetes' own migrator with `failure` from the first
 * second on, for `failingMs`. A stand-in: no API server forgets its own credentials on request.
 */
function begin(t: Test, options: { failure: Error; failingMs: number; workMs: number; inTree?: boolean }) {
  const clock = new ManualClock();
  const stop = new AbortController();
  const read = async (_: unknown, parse: (body: Readable) => Promise<unknown>) => {
    const isFailing = clock.monotonic() > 1_000 && clock.monotonic() < options.failingMs;
    if (isFailing) {
      throw options.failure;
    }
    const items = options.inTree === true && clock.monotonic() > 1_000 ? [RUNNING] : [];
    const list = { kind: "List", metadata: { resourceVersion: "1" }, items };
    return { body: await parse(Readable.from([Buffer.from(JSON.stringify(list))])) };
  };
  const version = { groupVersion: "storagemigration.k8s.io/v1", version: "v1" };
  const groups = [{ name: "storagemigration.k8s.io", preferredVersion: version, versions: [version] }];
  const transport = { request: async () => ({ body: { kind: "APIGroupList", groups } }), read };
  const client = { transport, find: async () => undefined } as unknown as ApiClient;
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const ended = besideInTree({ client, clock, retrier, signal: stop.signal }, "widgets.example.com", async (signal) => {
    await clock.sleep(options.workMs, signal);
    return "done";
  }).catch((error: unknown) => error);
  t.teardown(async () => {
    stop.abort(new Error("the test is over"));
    await clock.advance(5_000);
    await ended;
  });
  return { clock, ended };
}

for (const [what, failure] of FAILURES) {
  await tap.test(`besideInTree() goes on through a ${what} of half a minute`, async (t) => {
    const { clock, ended } = begin(t, { failure, failingMs: 30_000, workMs: 120_000 });
    await clock.advance(130_000);
    t.equal(await ended, "done");
  });
}

await tap.test(
  "besideInTree() ends where it cannot see for a minute whether the other migrator is at work",
  async (t) => {
    const [[, failure]] = FAILURES;
    const { clock, ended } = begin(t, { failure, failingMs: 600_000, workMs: 600_000 });
    await clock.advance(70_000);
    t.equal(await ended, failure);
  },
);

await tap.test("besideInTree() ends at once where the other migrator begins, also after a failed look", async (t) => {
  const [[, failure]] = FAILURES;
  const { clock, ended } = begin(t, { failure, failingMs: 10_000, workMs: 600_000, inTree: true });
  await clock.advance(15_000);
  t.ok((await ended) instanceof InTreeAtWork);
});
