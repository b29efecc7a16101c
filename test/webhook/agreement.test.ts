import * as fc from "fast-check";
import tap from "tap";
import { MIGRATING_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { buildWebhookApp, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { freezeVerdict } from "../../src/freeze/freeze-rule.ts";
import { type CrdTraits, crdWith, reviewOf } from "../freeze/freeze-rule-crd.ts";

const name = fc.constantFrom("v1", "v2", "v1beta1", 'odd "name"\\', "ü");
const key = fc.constantFrom(MIGRATING_ANNOTATION, `${MIGRATING_ANNOTATION}x`, "a", "constructor", "\n");
const crd: fc.Arbitrary<CrdTraits> = fc.record({
  versions: fc.dictionary(name, fc.boolean(), { noNullPrototype: true }),
  annotations: fc.option(fc.dictionary(key, fc.string(), { noNullPrototype: true }), { nil: undefined }),
  conditions: fc.option(
    fc.array(
      fc.record({
        type: fc.constantFrom(STORAGE_MIGRATING_CONDITION, "Established"),
        status: fc.constantFrom("True", "False", "Unknown"),
        message: fc.string({ unit: "binary" }),
      }),
      { maxLength: 3 },
    ),
    { nil: undefined },
  ),
});

await tap.test("the webhook and the rule agree on every generated update", async (t) => {
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  let denials = 0;
  await fc.assert(
    fc.asyncProperty(crd, crd, fc.uuid(), fc.constantFrom(undefined, 1), async (before, after, uid, indent) => {
      const [oldCrd, newCrd] = [crdWith(before), crdWith(after)];
      const answer = await app.inject({
        method: "POST",
        url: VALIDATE_PATH,
        headers: { "content-type": "application/json" },
        payload: JSON.stringify(reviewOf(oldCrd, newCrd, uid), undefined, indent),
      });
      const { response } = answer.json<{ response: { uid: string; allowed: boolean; status?: { message: string } } }>();
      const verdict = freezeVerdict(oldCrd, newCrd);
      denials += verdict.allowed ? 0 : 1;
      const message = verdict.allowed ? undefined : verdict.message;
      return response.uid === uid && response.allowed === verdict.allowed && response.status?.message === message;
    }),
    { numRuns: 1_000 },
  );
  t.ok(denials > 100, `${denials} of 1000 were denied`);
});
