import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { objectWebhook, type Verdict } from "./object-webhook.ts";
import { parallel } from "./parallel.ts";

const cluster = await Cluster.start(t);

const OBJECTS = 60;
const REASONS = { 404: "NotFound", 409: "Conflict", 429: "TooManyRequests", 500: "InternalError" } as const;

/** What controller-runtime passes on of a webhook's own request that failed, here one for an object of the same name. */
function passedOn(kind: TestKind, code: keyof typeof REASONS, name: string, hasDetails: boolean): Verdict {
  const details = { name, group: "example.com", kind: kind.plural, retryAfterSeconds: 30 };
  const message = `${kind.plural} "${name}" not found`;
  return {
    allowed: false,
    status: { code, reason: REASONS[code], message, ...(hasDetails ? { details } : {}) },
  };
}

async function assertRejected(t: Test, kind: TestKind, isSecond: boolean): Promise<void> {
  const startedAt = performance.now();
  const run = await cluster.migrate([kind.name, "--max-qps", "200", "-o", "json"]);
  const ms = performance.now() - startedAt;
  t.equal(run.code, 3, run.stderr);
  const lines = run.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const result = lines.at(-1);
  t.match(result, {
    outcome: "incomplete",
    counts: { failed: 1, gone: 0, migrated: isSecond ? 0 : OBJECTS - 1, newer: isSecond ? OBJECTS - 1 : 0 },
    failures: [
      { namespace: "default", name: "w7", reason: /^admission webhook "own.example.com" denied the request: / },
    ],
  });
  t.notOk(
    lines.some(({ type }) => type === "retrying" || type === "waiting"),
    "nobody waited for that object",
  );
  // Generous, for a busy machine: a slot that was held would take a minute, and longer there.
  t.ok(ms < 58_000, `it took ${Math.round(ms)} ms`);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: OBJECTS - 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
  await assertUnfrozen(t, cluster, kind);
}

for (const code of [404, 409, 429, 500] as const) {
  for (const hasDetails of [true, false]) {
    const words = hasDetails ? "with" : "without";
    parallel(`a webhook that denies one object with ${code} ${words} details rejects it, twice in a row`, async (t) => {
      const kind = new TestKind(`deny${code}`);
      await cluster.createStale(kind, OBJECTS);
      let denies = true;
      let denials = 0;
      const decide = (name: string): Verdict => {
        if (!denies || name !== "w7") return { allowed: true };
        denials++;
        return passedOn(kind, code, name, hasDetails);
      };
      await objectWebhook(t, cluster, kind, { decide });
      await assertRejected(t, kind, false);
      t.equal(denials, 2, "the object was tried once more");
      await assertRejected(t, kind, true);
      denies = false;
      const run = await cluster.migrate([kind.name]);
      t.equal(run.code, 0, run.stderr);
      t.same(await cluster.storedAs(kind), { v1: OBJECTS });
      t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
    });
  }
}

parallel("a webhook that denies an object once has it rewritten at the end of the run", async (t) => {
  const kind = new TestKind("hiccup");
  await cluster.createStale(kind, 10);
  const denied: string[] = [];
  const decide = (name: string, isDryRun: boolean): Verdict => {
    if (isDryRun || denied.includes(name) || !["w2", "w5"].includes(name)) return { allowed: true };
    denied.push(name);
    return passedOn(kind, 404, name, true);
  };
  await objectWebhook(t, cluster, kind, { decide });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 0, run.stderr);
  t.same(denied.toSorted(), ["w2", "w5"]);
  t.match(run.stdout, /: 10 rewritten; storedVersions is \[v1\]/);
  t.same(await cluster.storedAs(kind), { v1: 10 });
});

parallel("a 404 that names something else than the object never ends the run", async (t) => {
  const kind = new TestKind("other");
  await cluster.createStale(kind, 10);
  const status = { code: 404, reason: "NotFound", details: { name: "default", kind: "namespaces" } };
  const decide = (name: string): Verdict => (name === "w7" ? { allowed: false, status } : { allowed: true });
  await objectWebhook(t, cluster, kind, { decide });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 3, run.stderr);
  t.match(run.stderr, /default\/w7: admission webhook "own.example.com" denied the request: NotFound/);
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: 9 });
});

parallel("a 500 of one object that no webhook denied is waited for half a minute, twice in a row", async (t) => {
  const kind = new TestKind("fault");
  await cluster.createStale(kind, OBJECTS);
  // The API server answers 500 where it cannot carry out what a mutating webhook asks for.
  const patch = [{ op: "replace", path: "/spec/missing/deep", value: 1 }];
  const decide = (name: string): Verdict => (name === "w7" ? { allowed: true, patch } : { allowed: true });
  await objectWebhook(t, cluster, kind, { decide, type: "Mutating" });
  for (const migrated of [OBJECTS - 1, 0]) {
    const startedAt = performance.now();
    const run = await cluster.migrate([kind.name, "-o", "json"]);
    t.comment(`it took ${Math.round(performance.now() - startedAt)} ms`);
    t.equal(run.code, 3, run.stderr);
    const result = JSON.parse(run.stdout.trim().split("\n").at(-1) ?? "") as object;
    t.match(result, { outcome: "incomplete", counts: { failed: 1, gone: 0, migrated }, failures: [{ name: "w7" }] });
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: OBJECTS - 1 });
  }
});
