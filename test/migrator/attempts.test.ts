import t from "tap";
import { KsvmError } from "../../src/errors.ts";
import { ApiServerMissing } from "../../src/apiservers/find.ts";
import { EpochChanged } from "../../src/apiservers/converge.ts";
import { Client } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { HttpAnswer } from "../../src/kube/http.ts";
import { mayBeginAgain, newRun, yieldToInTree } from "../../src/migrator/attempts.ts";
import { InTreeRunning } from "../../src/migrator/in-tree.ts";
import { Stalled } from "../../src/migrator/rewrite.ts";
import { checkpointPurpose } from "../../src/migrator/run-lease.ts";
import type { MigrateOptions, MigrationEvent } from "../../src/migrator/types.ts";
import { FakeClock } from "../fake-clock.ts";

const MINUTE = 60_000;

/** What ends an attempt, and for how many minutes without progress the run begins again after it. */
const TABLE: readonly (readonly [string, unknown, number])[] = [
  ["an API server that fails", new ApiError("patch it", 503, "busy"), 15],
  ["a webhook that is down", new ApiError("patch it", 500, 'failed calling webhook "a": refused'), 15],
  ["a path that is not served", new ApiError("list it", 404, "404 page not found"), 15],
  ["a guard that is not proven", new KsvmError("FreezeNotProven", "a webhook's pods roll"), 15],
  ["a stall", new Stalled(undefined), 15],
  ["a migration of Kubernetes", new InTreeRunning("theirs"), 15],
  ["an API server that is missing", new ApiServerMissing("1 of 2 answer"), 70],
  ["rights that are missing", new ApiError("patch it", 403, 'User "a" cannot patch resource "widgets"'), 0],
  ["a user who lifts the freeze", new KsvmError("FreezeLifted", "lifted"), 0],
  ["a fault of this program", new TypeError("undefined"), 0],
];

for (const [name, error, minutes] of TABLE) {
  await t.test(`${name} has the run begin again for ${minutes} minutes`, async (t) => {
    const run = { changes: 0, progressAt: MINUTE };
    t.equal(mayBeginAgain(run, error, minutes * MINUTE), minutes > 0);
    t.notOk(mayBeginAgain(run, error, (minutes + 1) * MINUTE));
    t.strictSame(run, { changes: 0, progressAt: MINUTE }, "nothing is counted by asking");
  });
}

await t.test("a CRD that keeps changing has the run begin again five times", async (t) => {
  const error = new EpochChanged("widgets.example.com", "the spec changed");
  const tries = [1, 2, 3, 4, 5, 6].map((changes) => mayBeginAgain({ changes, progressAt: 0 }, error, 24 * 60 * MINUTE));
  t.strictSame(tries, [true, true, true, true, true, false]);
});

await t.test("a migration of Kubernetes goes first for fifteen minutes, then the run goes on beside it", async (t) => {
  const clock = new FakeClock();
  const resource = { group: "apps", resource: "deployments" };
  const status = { conditions: [{ type: "Running", status: "True" }] };
  const list = { kind: "List", metadata: {}, items: [{ metadata: { name: "theirs" }, spec: { resource }, status }] };
  const send = async (): Promise<HttpAnswer> => ({ status: 200, headers: {}, text: JSON.stringify(list) });
  const client = new Client({ address: "https://a", send, clock, random: () => 0.5 });
  const events: MigrationEvent[] = [];
  const { signal } = new AbortController();
  const options = { identity: "a", signal, onEvent: (event: MigrationEvent) => events.push(event) };
  const run = newRun(client, "deployments.apps", options);
  const go = (): Promise<void> => yieldToInTree(client, run, { group: "apps", plural: "deployments" }, options);
  clock.advance(14 * MINUTE);
  await t.rejects(go(), { name: "InTreeRunning" });
  clock.advance(MINUTE);
  await go();
  t.match(events, [{ type: "warning", message: /"theirs" of Kubernetes is running; going on beside it/ }]);
});

await t.test("a checkpoint is that of a run which waited as long, and for the same API servers", async (t) => {
  const purposeOf = (options: Partial<MigrateOptions>, identity = "a"): string =>
    checkpointPurpose(options as MigrateOptions, identity);
  const usual = purposeOf({});
  t.equal(purposeOf({ settleMs: 90_000, ignored: [], purpose: "migrate" }, "b"), usual);
  const others = [
    { settleMs: 1_000 },
    { settleMs: 180_000 },
    { ignored: ["apiserver-x"] },
    { endpoints: ["https://a"] },
    { purpose: "reencrypt" },
  ];
  const all = [usual, ...others.map((options) => purposeOf(options)), purposeOf({ force: true })];
  t.equal(new Set(all).size, all.length);
  t.not(purposeOf({ force: true }, "a"), purposeOf({ force: true }, "b"), "one that is forced resumes itself alone");
});
