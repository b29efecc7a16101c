import tap from "tap";
import { isAsWanted, mergePatchTo } from "../../src/kube/drift.ts";

const WANTED = {
  metadata: { name: "a", labels: { b: "c" } },
  webhooks: [
    {
      name: "a",
      clientConfig: { url: "u", caBundle: "x" },
      objectSelector: {},
      rules: ["r"],
      matchConditions: undefined,
    },
  ],
};
const [webhook] = WANTED.webhooks;

const cases: readonly [name: string, live: unknown, isRight: boolean][] = [
  ["the same", WANTED, true],
  [
    "with metadata and status beside it",
    { ...WANTED, status: {}, metadata: { ...WANTED.metadata, uid: "1", labels: { b: "c", d: "e" } } },
    true,
  ],
  ["a default beside it", { ...WANTED, webhooks: [{ ...webhook, timeoutSeconds: 5 }] }, true],
  ["nothing", undefined, false],
  ["null", null, false],
  ["a label changed", { ...WANTED, metadata: { name: "a", labels: { b: "x" } } }, false],
  ["the caBundle emptied", { ...WANTED, webhooks: [{ ...webhook, clientConfig: { url: "u", caBundle: "" } }] }, false],
  ["the caBundle gone", { ...WANTED, webhooks: [{ ...webhook, clientConfig: { url: "u" } }] }, false],
  ["a selector added", { ...WANTED, webhooks: [{ ...webhook, objectSelector: { matchLabels: {} } }] }, false],
  ["the selector gone", { ...WANTED, webhooks: [{ ...webhook, objectSelector: undefined }] }, false],
  ["a rule added", { ...WANTED, webhooks: [{ ...webhook, rules: ["r", "s"] }] }, false],
  ["no rule left", { ...WANTED, webhooks: [{ ...webhook, rules: [] }] }, false],
  ["what is to be absent added", { ...WANTED, webhooks: [{ ...webhook, matchConditions: [{}] }] }, false],
  ["a webhook added", { ...WANTED, webhooks: [webhook, webhook] }, false],
  ["no webhook left", { ...WANTED, webhooks: null }, false],
];

for (const [name, live, isRight] of cases) {
  await tap.test(`isAsWanted() says ${isRight ? "yes" : "no"}: ${name}`, (t) => {
    t.equal(isAsWanted(live, WANTED), isRight);
    t.end();
  });
}

await tap.test(
  "mergePatchTo() takes out what is to be absent, and leaves lists and empty objects as they are wanted",
  (t) => {
    const wanted = {
      spec: { bound: undefined, rules: [{ names: undefined }], selector: {}, match: { also: undefined } },
    };
    t.same(JSON.parse(JSON.stringify(mergePatchTo(wanted))), {
      spec: { bound: null, rules: [{}], selector: {}, match: { also: null } },
    });
    t.end();
  },
);
