import { Readable } from "node:stream";
import tap from "tap";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import { EarlyMigrations, type EarlyMigrationsOptions } from "../../src/webhook/early-migrations.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const WIDGETS = { group: "example.com", resource: "widgets" };

interface Setting {
  readonly early: EarlyMigrations;
  readonly clock: FakeClock;
  readonly paths: string[];
  /** How many reads are under way, and were at most. */
  readonly reads: { now: number; most: number };
}

/** A judge whose API server answers with what `answer` returns. */
function setting(answer: () => unknown, options: Partial<EarlyMigrationsOptions> = {}): Setting {
  const clock = new FakeClock();
  const paths: string[] = [];
  const reads = { now: 0, most: 0 };
  const read = async ({ path }: ApiRequest, readBody: (body: Readable) => Promise<unknown>): Promise<unknown> => {
    paths.push(path);
    reads.most = Math.max(reads.most, ++reads.now);
    try {
      const text = JSON.stringify(await answer());
      return { status: 200, body: await readBody(Readable.from([Buffer.from(text)])), serverTime: clock.now() };
    } finally {
      reads.now--;
    }
  };
  const client = { transport: { read } } as unknown as ApiClient;
  const early = new EarlyMigrations({ client, clock, mode: "deny", settleMs: 65_000, pauseMs: 0, ...options });
  return { early, clock, paths, reads };
}

/** A CRD whose versions changed at that time; without one it does not tell. */
function changedAt(ms?: number, generation = 3) {
  const time = new Date(ms ?? 0).toISOString();
  const fieldsV1 = { "f:spec": { "f:versions": {} } };
  const managedFields = ms === undefined ? [] : [{ manager: "kubectl", operation: "Update", time, fieldsV1 } as const];
  return crdWith({ metadata: { creationTimestamp: "2020-01-01T00:00:00Z", managedFields, generation } });
}

/** Neither what the API server said nor where the webhook failed: the log has it. */
const FAILED = /too early: it could not be read; the log of the webhook says why$/;

/** Time limits keep no process alive, and nothing else goes on here. */
const alive = setInterval(() => undefined, 1_000);
tap.teardown(() => clearInterval(alive));

function errorWith(status: number): ApiError {
  return new ApiError("get it", status, { text: "by a\nproxy" });
}

await tap.test("judge() denies or warns until the settle time is over, with the seconds that are left", async (t) => {
  for (const [mode, decision] of [
    ["deny", "denied"],
    ["warn", "warned"],
  ] as const) {
    const changed = new FakeClock().now();
    const { early, clock, paths } = setting(() => changedAt(changed), { mode });
    t.match(await early.judge(WIDGETS), { decision, crdName: "widgets.example.com", message: / 66 s$/ });
    clock.advance(50_000);
    t.match(await early.judge(WIDGETS), {
      decision,
      message: / 16 s$/,
      seconds: 16,
    });
    clock.advance(16_000);
    t.same(await early.judge(WIDGETS), { decision: "allowed" });
    t.same(new Set(paths), new Set(["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"]));
  }
});

await tap.test(
  "judge() counts from its first sight where the CRD does not tell, and again after another change",
  async (t) => {
    let generation = 3;
    const { early, clock } = setting(() => changedAt(undefined, generation));
    t.match(await early.judge(WIDGETS), { decision: "denied", seconds: 66, message: /do not tell/ });
    clock.advance(66_000);
    t.same(await early.judge(WIDGETS), { decision: "allowed" });
    generation++;
    t.match(await early.judge(WIDGETS), { decision: "denied", seconds: 66 });
  },
);

await tap.test("judge() ends also where the clock that stamped the change is a day ahead", async (t) => {
  const { early, clock } = setting(() => changedAt(clock.now() + 86_400_000));
  const stamp = clock.now() + 86_400_000;
  const { early: fixed, clock: other } = setting(() => changedAt(stamp));
  t.match(await early.judge(WIDGETS), { seconds: 66 });
  t.match(await fixed.judge(WIDGETS), { seconds: 66 });
  other.advance(66_000);
  t.same(await fixed.judge(WIDGETS), { decision: "allowed" });
});

await tap.test("judge() asks nothing about what cannot be a CRD, and nothing at all when it is off", async (t) => {
  const { early, paths } = setting(() => changedAt());
  for (const resource of [
    { resource: "secrets" },
    { group: "", resource: "secrets" },
    { group: null, resource: "secrets" },
    { group: "example.com", resource: "widgets/status" },
    { group: "example.com", resource: "../../../../api/v1/secrets" },
    { group: "example.com", resource: "W" },
    { group: "example.com", resource: "" },
    { group: "x".repeat(3_000_000), resource: "widgets" },
  ]) {
    t.same(await early.judge(resource), { decision: "allowed" }, JSON.stringify(resource).slice(0, 80));
  }
  const off = setting(() => changedAt(), { mode: "off" });
  t.same(await off.early.judge(WIDGETS), { decision: "allowed" });
  t.same([...paths, ...off.paths], []);
});

await tap.test("judge() lets pass what has no CRD", async (t) => {
  const { early } = setting(() => {
    const details = { name: "deployments.apps", kind: "customresourcedefinitions" };
    throw new ApiError("get it", 404, { answer: { reason: "NotFound", details } as never });
  });
  t.same(await early.judge({ group: "apps", resource: "deployments" }), { decision: "allowed" });
});

await tap.test("judge() lets pass, with a warning, where the CRD cannot be read", async (t) => {
  const answers: readonly [name: string, answer: () => unknown, reason: RegExp][] = [
    [
      "403",
      () => {
        throw errorWith(403);
      },
      FAILED,
    ],
    [
      "a 404 that is about no CRD",
      () => {
        throw errorWith(404);
      },
      FAILED,
    ],
    ["another object", () => ({ metadata: { name: "other" } }), FAILED],
    ["no CRD", () => ({ metadata: { name: "widgets.example.com" } }), FAILED],
    ["an API server that hangs", () => new Promise(() => undefined), /not read within 0\.05 s/],
  ];
  for (const [name, answer, message] of answers) {
    const { early } = setting(answer, { readMs: 50 });
    t.match(await early.judge(WIDGETS), { decision: "unread", crdName: "widgets.example.com", message }, name);
  }
});

await tap.test("judge() reads few CRDs at once, and never those of creations whose time is up", async (t) => {
  const hold = Promise.withResolvers<void>();
  const { early, paths, reads } = setting(
    async () => {
      await hold.promise;
      return changedAt();
    },
    { readMs: 50 },
  );
  const verdicts = await Promise.all(Array.from({ length: 500 }, () => early.judge(WIDGETS)));
  t.ok(verdicts.every(({ decision }) => decision === "unread"));
  const words = verdicts.map((verdict) => ("message" in verdict ? verdict.message : ""));
  t.equal(words.filter((message) => message.endsWith("not read within 0.05 s")).length, 64);
  t.equal(words.filter((message) => message.endsWith("too many migrations are created at once")).length, 436);
  t.equal(reads.most, 4);
  hold.resolve();
  t.match(await early.judge(WIDGETS), { decision: "denied" }, "then it reads again");
  t.equal(paths.length, 5);
});

await tap.test("judge() remembers a bounded number of CRDs, and reads nothing of them but what it needs", async (t) => {
  let name = "";
  const hostile = Array.from({ length: 20_000 }, (_, n) => ({
    manager: `m${n}`,
    operation: "Update" as const,
    time: "2020-01-01T00:00:00Z",
    fieldsV1: { "f:spec": { "f:names": { [`f:${"x".repeat(30)}`]: {} } } },
  }));
  const { early, clock } = setting(() => {
    const crd = changedAt();
    return { ...crd, metadata: { ...crd.metadata, name, managedFields: name.startsWith("huge") ? hostile : [] } };
  });
  const judge = (plural: string) => {
    name = `${plural}.example.com`;
    return early.judge({ group: "example.com", resource: plural });
  };
  t.match(await judge("huge"), { decision: "denied", seconds: 66 });
  clock.advance(40_000);
  for (let n = 0; n < 1_000; n++) await judge(`w${n}`);
  t.match(await judge("w999"), { seconds: 66 });
  t.match(await judge("huge"), { seconds: 66 }, "forgotten, and so counted once more");
});
