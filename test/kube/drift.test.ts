import tap from "tap";
import { isAsWanted } from "../../src/kube/drift.ts";

const WANTED = {
  metadata: { name: "a", labels: { b: "c" } },
  webhooks: [{ name: "a", clientConfig: { url: "u", caBundle: "x" }, objectSelector: {}, rules: ["r"] }],
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
  ["a webhook added", { ...WANTED, webhooks: [webhook, webhook] }, false],
  ["no webhook left", { ...WANTED, webhooks: null }, false],
];

for (const [name, live, isRight] of cases) {
  await tap.test(`isAsWanted() says ${isRight ? "yes" : "no"}: ${name}`, (t) => {
    t.equal(isAsWanted(live, WANTED), isRight);
    t.end();
  });
}
