import t from "tap";
import { storedVersionsOf } from "../crd.ts";
import { assertUnfrozen } from "./assert-no-traces.ts";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { objectWebhook, type Verdict } from "./object-webhook.ts";
import { parallel } from "./parallel.ts";

// Admission webhooks of other owners that deny an object: whatever status they answer, it says nothing but that.

const OBJECTS = 20;
const cluster = await Cluster.start(t);

/** What controller-runtime passes on of a webhook's own request that failed, here one for an object of the same name. */
function denial(kind: TestKind, code: number, reason: string, hasDetails: boolean): Verdict {
  const details = { name: "w7", group: "example.com", kind: kind.plural, retryAfterSeconds: 30 };
  const status = { code, reason, message: `${kind.plural} "w7" not found`, ...(hasDetails ? { details } : {}) };
  return { allowed: false, status };
}

for (const [code, reason, hasDetails] of [
  [404, "NotFound", true],
  [404, "NotFound", false],
  [409, "Conflict", true],
  [429, "TooManyRequests", true],
  [500, "InternalError", false],
] as const) {
  const words = `${code} ${hasDetails ? "with" : "without"} details`;
  parallel(`an object that a webhook denies with ${words} is named, and nothing is pruned`, async (t) => {
    const kind = new TestKind(`deny${code}`);
    await cluster.createStale(kind, OBJECTS);
    let denies = true;
    const decide = (name: string): Verdict =>
      denies && name === "w7" ? denial(kind, code, reason, hasDetails) : { allowed: true };
    await objectWebhook(t, cluster, kind, { decide });
    const run = await cluster.migrate([kind.name]);
    t.equal(run.code, 3, run.stderr);
    t.match(run.stderr, 'default/w7: admission webhook "own.example.com" denied the request');
    t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: OBJECTS - 1 });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
    await assertUnfrozen(t, cluster, kind);
    denies = false;
    const again = await cluster.migrate([kind.name]);
    t.equal(again.code, 0, again.stderr);
    t.same(await cluster.storedAs(kind), { v1: OBJECTS });
    t.same(storedVersionsOf(await cluster.crd(kind)), ["v1"]);
  });
}

parallel("an object that the API server answers 500 for is named, and the others are rewritten", async (t) => {
  const kind = new TestKind("fault");
  await cluster.createStale(kind, OBJECTS);
  // The API server answers 500 where it cannot carry out what a mutating webhook asks for.
  const patch = [{ op: "replace", path: "/spec/missing/deep", value: 1 }];
  const decide = (name: string): Verdict => (name === "w7" ? { allowed: true, patch } : { allowed: true });
  await objectWebhook(t, cluster, kind, { decide, type: "Mutating" });
  const run = await cluster.migrate([kind.name]);
  t.equal(run.code, 3, run.stderr);
  t.match(run.stderr, "default/w7");
  t.same(await cluster.storedAs(kind), { v1alpha1: 1, v1: OBJECTS - 1 });
  t.same(storedVersionsOf(await cluster.crd(kind)), ["v1alpha1", "v1"]);
});
