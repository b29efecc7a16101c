import * as fc from "fast-check";
import type { InjectOptions } from "fastify";
import { pino } from "pino";
import tap from "tap";
import { freezeVerdict, MIGRATING } from "../../src/freeze/rule.ts";
import type { Crd } from "../../src/kube/objects.ts";
import { BODY_LIMIT, buildWebhookApp, STATUS_TEXTS, VALIDATE_PATH } from "../../src/webhook/app.ts";
import { type CrdTraits, FROZEN, crdWith, reviewOf } from "../freeze/freeze-rule-crd.ts";
import { TEST_SEED } from "../seed.ts";

const FROZEN_CRD = crdWith({ annotations: FROZEN });
const FLIPPED_CRD = crdWith({ annotations: FROZEN, versions: { v1: false, v2: true } });
const JSON_TYPE = { "content-type": "application/json" };

function refusal(code: keyof typeof STATUS_TEXTS, uid = "", message: string = STATUS_TEXTS[code]): object {
  const reasons: Readonly<Record<number, string>> = { 413: "RequestEntityTooLarge", 500: "InternalError" };
  const reason = reasons[code] ?? "BadRequest";
  return {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid, allowed: false, status: { code, reason, message } },
  };
}

function post(change: InjectOptions): InjectOptions {
  return { method: "POST", url: VALIDATE_PATH, headers: JSON_TYPE, ...change };
}

const review = reviewOf(FROZEN_CRD, FLIPPED_CRD);
const text = (value: unknown): string => JSON.stringify(value);
const large = (crd: object): object => ({ ...crd, pad: "x".repeat(3 * 1024 * 1024 - 2048) });
const cannotRead = (problem: string): string => `Cannot read the AdmissionReview: ${problem}`;

const rows: readonly [name: string, request: InjectOptions, status: number, body: object][] = [
  ["an unknown path", { url: "/" }, 404, { message: STATUS_TEXTS[404] }],
  [
    "an unknown path with a body",
    post({ url: "/validate/", payload: text(review) }),
    404,
    { message: STATUS_TEXTS[404] },
  ],
  ["GET of /validate", { url: VALIDATE_PATH }, 405, { message: STATUS_TEXTS[405] }],
  ["PUT to /validate", post({ method: "PUT", payload: "{" }), 405, { message: STATUS_TEXTS[405] }],
  ["POST to /healthz", post({ url: "/healthz?a=b", payload: "{}" }), 405, { message: STATUS_TEXTS[405] }],
  ["text/plain", post({ headers: { "content-type": "text/plain" }, payload: text(review) }), 415, refusal(415)],
  ["YAML", post({ headers: { "content-type": "application/yaml" }, payload: "a: b" }), 415, refusal(415)],
  ["a body without a content type", post({ headers: {}, payload: Buffer.from("{}") }), 415, refusal(415)],
  ["an empty body", post({ payload: "" }), 400, refusal(400)],
  ["broken JSON", post({ payload: '{"kind":' }), 400, refusal(400)],
  [
    "JSON null",
    post({ payload: "null" }),
    400,
    refusal(400, "", cannotRead('apiVersion must be "admission.k8s.io/v1"')),
  ],
  [
    "another version",
    post({ payload: text({ ...review, apiVersion: "admission.k8s.io/v1beta1" }) }),
    400,
    refusal(400, "705ab4f5", cannotRead('apiVersion must be "admission.k8s.io/v1"')),
  ],
  [
    "another kind",
    post({ payload: text({ ...review, kind: "ConversionReview" }) }),
    400,
    refusal(400, "705ab4f5", cannotRead('kind must be "AdmissionReview"')),
  ],
  [
    "no request",
    post({ payload: text({ ...review, request: undefined }) }),
    400,
    refusal(400, "", cannotRead("request.uid must be a non-empty string")),
  ],
  [
    "no oldObject",
    post({ payload: text(reviewOf(null, FLIPPED_CRD)) }),
    400,
    refusal(
      400,
      "705ab4f5",
      cannotRead("request.oldObject must be a CustomResourceDefinition of apiextensions.k8s.io/v1"),
    ),
  ],
  ["a body over the limit", post({ payload: text({ pad: "x".repeat(64 * 1024) }) }), 413, refusal(413)],
];

for (const [name, request, status, body] of rows) {
  await tap.test(`buildWebhookApp() answers ${status} to ${name}`, async (t) => {
    const app = buildWebhookApp({ bodyLimit: 64 * 1024 });
    t.teardown(() => app.close());
    const answer = await app.inject(request);
    t.equal(answer.statusCode, status);
    t.match(answer.headers["content-type"], /^application\/json/);
    t.same(answer.json(), body);
    t.equal(
      answer.headers["allow"],
      status === 405 ? (request.url === VALIDATE_PATH ? "POST" : "GET, HEAD") : undefined,
    );
  });
}

await tap.test("buildWebhookApp() answers a crash with 500 and nothing of the error", async (t) => {
  const app = buildWebhookApp({
    progressOf: () => {
      throw new Error("secret internals");
    },
  });
  t.teardown(() => app.close());
  const answer = await app.inject(post({ payload: text(review) }));
  t.equal(answer.statusCode, 500);
  t.same(answer.json(), refusal(500));
  t.notMatch(answer.payload, /secret|stack|\.ts/);
});

await tap.test("buildWebhookApp() answers a verdict with 200, and tells how far the migration is", async (t) => {
  const app = buildWebhookApp({ progressOf: (crdName) => `3 of 7 ${crdName}` });
  t.teardown(() => app.close());
  const denial = await app.inject(post({ url: `${VALIDATE_PATH}?timeout=5s`, payload: text(review) }));
  t.equal(denial.statusCode, 200);
  t.match(denial.json(), {
    response: {
      uid: "705ab4f5",
      allowed: false,
      status: {
        code: 403,
        reason: "Forbidden",
        message: /^StorageVersionFrozen: .*"widgets\.example\.com" from "v1" to "v2".*; so far 3 of 7 widgets/,
      },
    },
  });
  const allowance = await app.inject(post({ payload: text(reviewOf(crdWith(), FLIPPED_CRD, "b")) }));
  t.equal(allowance.statusCode, 200);
  t.same(allowance.json(), {
    apiVersion: "admission.k8s.io/v1",
    kind: "AdmissionReview",
    response: { uid: "b", allowed: true },
  });
});

await tap.test("buildWebhookApp() logs little of a review, however long its texts are", async (t) => {
  const lines: string[] = [];
  const app = buildWebhookApp({ logger: pino({ level: "debug" }, { write: (line: string) => void lines.push(line) }) });
  t.teardown(() => app.close());
  const long = "\u001b[31m\n".repeat(100_000);
  const { metadata } = FLIPPED_CRD;
  const named = { ...FLIPPED_CRD, metadata: { ...metadata, name: long } };
  const annotated = crdWith({ annotations: { [long]: 7 as unknown as string } });
  const bodies = [
    reviewOf(named, named, long),
    reviewOf(FROZEN_CRD, annotated, long),
    { ...(reviewOf(FROZEN_CRD, FLIPPED_CRD) as object), request: { uid: long } },
  ];
  for (const body of bodies) await app.inject(post({ payload: text(body) }));
  t.equal(lines.length, bodies.length, "one line each");
  for (const line of lines) {
    t.ok(line.length < 4_000, `${line.length} characters`);
    t.notMatch(line.trimEnd(), /\p{Cc}/u, "control characters are escaped");
  }
});

await tap.test("buildWebhookApp() reads schemas with any property name", async (t) => {
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  const schema = '{"__proto__":{"storage":true},"constructor":{"prototype":{"annotations":{}}}}';
  const payload = text(review).replaceAll('"served":true', `"schema":${schema}`);
  const answer = await app.inject(post({ payload }));
  t.match(answer.json(), { response: { allowed: false, status: { code: 403 } } });
});

await tap.test("buildWebhookApp() reads a review of two objects as large as the API server takes", async (t) => {
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  const payload = text(reviewOf(large(FROZEN_CRD), large(FLIPPED_CRD)));
  t.ok(payload.length < BODY_LIMIT);
  t.match((await app.inject(post({ payload }))).json(), { response: { allowed: false, status: { code: 403 } } });
  const tooLarge = await app.inject(post({ payload: "x".repeat(BODY_LIMIT + 1) }));
  t.equal(tooLarge.statusCode, 413);
});

await tap.test("buildWebhookApp() says that it is alive and ready", async (t) => {
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  for (const url of ["/healthz", "/readyz"]) {
    const answer = await app.inject({ url });
    t.equal(answer.statusCode, 200);
    t.same(answer.json(), { status: "ok" });
    t.equal((await app.inject({ method: "HEAD", url })).statusCode, 200);
  }
});

const name = fc.constantFrom("v1", "v2", "v1beta1", 'odd "name"\\', "ü");
const key = fc.constantFrom(MIGRATING, MIGRATING, `${MIGRATING}x`, "a", "constructor", "\n");
const crd: fc.Arbitrary<CrdTraits> = fc.record({
  versions: fc.dictionary(name, fc.boolean(), { noNullPrototype: true }),
  annotations: fc.option(fc.dictionary(key, fc.string(), { noNullPrototype: true }), { nil: undefined }),
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
      const denial = freezeVerdict(oldCrd as unknown as Crd, newCrd as unknown as Crd);
      denials += denial === undefined ? 0 : 1;
      const isSame = response.allowed === (denial === undefined) && response.status?.message === denial?.message;
      return response.uid === uid && isSame;
    }),
    { seed: TEST_SEED, numRuns: 300 },
  );
  t.ok(denials > 100, `${denials} of 1000 were denied`);
});
