import tap from "tap";
import { Metrics } from "../../src/observability/metrics.ts";
import { buildWebhookApp, EARLY_PATH, type WebhookAppOptions } from "../../src/webhook/app.ts";
import type { EarlyVerdict, InTreeResource } from "../../src/webhook/early-migrations.ts";
import { STATUS_TEXTS } from "../../src/webhook/http-statuses.ts";
import { counted } from "../observability/counted.ts";

const CRD_NAME = "widgets.example.com";
const AUDITED = { "too-early-for": CRD_NAME, "seconds-left": "42" };

/** A review of a new migration, in whatever version: v1alpha1 has a version in spec.resource as well. */
function reviewOf(resource: unknown, request: object = {}): object {
  const object = { apiVersion: "storagemigration.k8s.io/v1alpha1", metadata: { name: "m" }, spec: { resource } };
  return {
    kind: "AdmissionReview",
    apiVersion: "admission.k8s.io/v1",
    request: { uid: "u1", operation: "CREATE", dryRun: true, object, oldObject: null, ...request },
  };
}

const WIDGETS = { group: "example.com", version: "v1", resource: "widgets" };

async function post(payload: string, options: WebhookAppOptions = {}) {
  const app = buildWebhookApp({ bodyLimit: 64 * 1_024, ...options });
  try {
    const headers = { "content-type": "application/json" };
    return await app.inject({ method: "POST", url: `${EARLY_PATH}?timeout=5s`, headers, payload });
  } finally {
    await app.close();
  }
}

await tap.test("a migration is created, warned about, or to be created later", async (t) => {
  const early = { crdName: CRD_NAME, message: "why", seconds: 42 };
  const details = { retryAfterSeconds: 42 };
  const status = { code: 403, reason: "Forbidden", message: "why", details };
  const verdicts: readonly [EarlyVerdict, response: object][] = [
    [{ decision: "allowed" }, { allowed: true }],
    [
      { decision: "warned", ...early },
      { allowed: true, warnings: ["why"], auditAnnotations: AUDITED },
    ],
    [
      { decision: "unread", crdName: CRD_NAME, message: "why" },
      { allowed: true, warnings: ["why"], auditAnnotations: { "not-judged": CRD_NAME } },
    ],
    [
      { decision: "denied", ...early },
      { allowed: false, status, auditAnnotations: AUDITED },
    ],
  ];
  for (const [verdict, response] of verdicts) {
    const asked: InTreeResource[] = [];
    const metrics = new Metrics();
    const judgeEarly = async (resource: InTreeResource): Promise<EarlyVerdict> => {
      asked.push(resource);
      return verdict;
    };
    const answer = await post(JSON.stringify(reviewOf(WIDGETS)), { judgeEarly, metrics });
    t.equal(answer.statusCode, 200);
    t.same(answer.json(), {
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: "u1", ...response },
    });
    t.same(asked, [{ group: "example.com", resource: "widgets" }]);
    const { values } = await metrics.inTreeReviews.get();
    t.match(values, [{ labels: { decision: verdict.decision }, value: 1 }]);
    t.same(await counted(metrics.webhookReviews, "decision"), {}, "it is no review of a freeze");
  }
});

await tap.test("an answer that is no verdict is never a denial: the API server ignores its HTTP status", async (t) => {
  const rows: readonly [name: string, payload: string, status: number][] = [
    ["nothing", "", 400],
    ["broken JSON", '{"kind":', 400],
    ["deep JSON", "[".repeat(20_000), 400],
    ["an update", JSON.stringify(reviewOf(WIDGETS, { operation: "UPDATE" })), 400],
    ["a deletion", JSON.stringify(reviewOf(WIDGETS, { operation: "DELETE", object: null })), 400],
    ["no resource", JSON.stringify(reviewOf(undefined)), 400],
    ["a number for a group", JSON.stringify(reviewOf({ group: 7, resource: "widgets" })), 400],
    ["no uid", JSON.stringify(reviewOf(WIDGETS, { uid: "" })), 400],
    ["a body over the limit", JSON.stringify({ ...reviewOf(WIDGETS), pad: "x".repeat(70_000) }), 413],
  ];
  for (const [name, payload, status] of rows) {
    const metrics = new Metrics();
    const answer = await post(payload, { metrics, judgeEarly: async () => t.fail("it was judged") as never });
    t.equal(answer.statusCode, status, name);
    t.match(answer.json(), { response: { allowed: false, status: { code: status } } }, name);
    t.match((await metrics.inTreeReviews.get()).values, [{ labels: { decision: "invalid" }, value: 1 }], name);
  }
  const app = buildWebhookApp();
  t.teardown(() => app.close());
  const got = await app.inject({ url: EARLY_PATH });
  t.equal(got.statusCode, 405);
  t.same(got.json(), { message: STATUS_TEXTS[405] });
});

await tap.test("without a judge every migration is created", async (t) => {
  const answer = await post(JSON.stringify(reviewOf({ group: null, resource: "secrets" })));
  t.match(answer.json(), { response: { uid: "u1", allowed: true } });
});
