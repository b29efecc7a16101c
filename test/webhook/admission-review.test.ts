import tap from "tap";
import {
  allowed,
  decodeReview,
  denied,
  errored,
  parseAdmissionReview,
  REVIEW_BUDGET,
} from "../../src/webhook/admission-review.ts";
import { reviewBody } from "../../src/webhook/review.ts";
import { crdWith, FROZEN, reviewOf } from "../freeze/freeze-rule-crd.ts";

const CRD = crdWith({ annotations: FROZEN, conditions: [{ type: "Established", status: "True" }] });

await tap.test("parseAdmissionReview() takes an update", (t) => {
  t.same(parseAdmissionReview(reviewOf(CRD, crdWith())), {
    valid: true,
    request: { uid: "705ab4f5", operation: "UPDATE", oldObject: CRD, object: crdWith() },
  });
  const nulls = { ...crdWith({ conditions: null }), metadata: { name: "widgets.example.com", annotations: null } };
  t.equal(parseAdmissionReview(reviewOf(nulls, nulls)).valid, true, "Go encodes an empty list or map as null");
  t.end();
});

const { request } = reviewOf(CRD, CRD) as { request: Record<string, unknown> };
const reviewWith = (change: object): unknown => ({ ...reviewOf(CRD, CRD), ...change });
const withRequest = (change: object): unknown => reviewWith({ request: { ...request, ...change } });
const withOld = (change: object): unknown => withRequest({ oldObject: { ...CRD, ...change } });
const withVersions = (versions: unknown): unknown => withOld({ spec: { versions } });
const withMetadata = (change: object): unknown => withOld({ metadata: { ...CRD.metadata, ...change } });

const refused: readonly [body: unknown, problem: string, uid?: string][] = [
  [undefined, "the body must be an object", ""],
  [null, "the body must be an object", ""],
  ["review", "the body must be an object", ""],
  [[], "the body must be an object", ""],
  [reviewWith({ apiVersion: "admission.k8s.io/v1beta1" }), 'apiVersion must be "admission.k8s.io/v1"'],
  [reviewWith({ kind: "ConversionReview" }), 'kind must be "AdmissionReview"'],
  [reviewWith({ request: undefined }), "request must be an object", ""],
  [reviewWith({ request: null }), "request must be an object", ""],
  [withRequest({ uid: undefined }), "request.uid must be a non-empty string", ""],
  [withRequest({ uid: 7 }), "request.uid must be a non-empty string", ""],
  [withRequest({ uid: "" }), "request.uid must be a non-empty string", ""],
  [withRequest({ operation: "DELETE" }), 'request.operation must be "UPDATE"'],
  [withRequest({ object: null }), "request.object must be an object"],
  [withRequest({ oldObject: undefined }), "request.oldObject must be an object"],
  [withRequest({ oldObject: null }), "request.oldObject must be an object"],
  [withOld({ kind: "Pod" }), 'request.oldObject.kind must be "CustomResourceDefinition"'],
  [
    withOld({ apiVersion: "apiextensions.k8s.io/v1beta1" }),
    'request.oldObject.apiVersion must be "apiextensions.k8s.io/v1"',
  ],
  [withOld({ metadata: undefined }), "request.oldObject.metadata must be an object"],
  [withMetadata({ name: "" }), "request.oldObject.metadata.name must be a non-empty string"],
  [withMetadata({ annotations: ["a"] }), "request.oldObject.metadata.annotations must be an object"],
  [withMetadata({ annotations: { a: true } }), 'request.oldObject.metadata.annotations["a"] must be a string'],
  [withOld({ spec: null }), "request.oldObject.spec must be an object"],
  [withVersions(undefined), "request.oldObject.spec.versions must be an array"],
  [withVersions({ 0: "v1" }), "request.oldObject.spec.versions must be an array"],
  [withVersions(["v1"]), "request.oldObject.spec.versions[0] must be an object"],
  [
    withVersions([
      { name: "v1", storage: true },
      { name: 2, storage: false },
    ]),
    "request.oldObject.spec.versions[1].name must be a non-empty string",
  ],
  [withVersions([{ name: "v1" }]), "request.oldObject.spec.versions[0].storage must be a boolean"],
  [withVersions([{ name: "v1", storage: "true" }]), "request.oldObject.spec.versions[0].storage must be a boolean"],
  [withOld({ status: "ok" }), "request.oldObject.status must be an object"],
  [withOld({ status: { conditions: {} } }), "request.oldObject.status.conditions must be an array"],
  [
    withOld({ status: { conditions: [{ type: "StorageMigrating", status: true }] } }),
    "request.oldObject.status.conditions[0].status must be a string",
  ],
];

for (const [body, problem, uid = "705ab4f5"] of refused) {
  await tap.test(`parseAdmissionReview() refuses a body in which ${problem}`, (t) => {
    t.same(parseAdmissionReview(body), { valid: false, uid, problem: `Cannot read the AdmissionReview: ${problem}` });
    t.end();
  });
}

const answer = (response: object): object => ({
  apiVersion: "admission.k8s.io/v1",
  kind: "AdmissionReview",
  response: { uid: "a", ...response },
});

await tap.test("the answers echo the uid", (t) => {
  t.same(allowed("a"), answer({ allowed: true }));
  t.same(denied("a", "No"), answer({ allowed: false, status: { code: 403, reason: "Forbidden", message: "No" } }));
  t.same(
    errored("a", 400, "What"),
    answer({ allowed: false, status: { code: 400, reason: "BadRequest", message: "What" } }),
  );
  t.same(
    errored("a", 500, "Oh"),
    answer({ allowed: false, status: { code: 500, reason: "InternalError", message: "Oh" } }),
  );
  t.end();
});

const LARGE = 200_000;
const { object: whole } = request as { object: { metadata: object } };

/** A review whose oldObject has more fields, as text; `bytes` of white space make it one that is scanned. */
function reviewText(oldObject: string, bytes = 0): Buffer {
  const text = JSON.stringify(withRequest({ oldObject: "OLD" })).replace('"OLD"', oldObject);
  return Buffer.from(text + " ".repeat(bytes));
}

await tap.test("decodeReview() keeps the same of a review, however large it is", (t) => {
  const annotations = { ...FROZEN, other: "x" };
  const crd = { ...whole, metadata: { ...whole.metadata, annotations, managedFields: [{}] }, extra: [1] };
  for (const bytes of [0, LARGE]) {
    const decoded = decodeReview(reviewText(JSON.stringify(crd), bytes)) as { request: { oldObject: object } };
    t.match(decoded.request.oldObject, { metadata: { annotations: FROZEN } });
    t.notMatch(decoded.request.oldObject, { metadata: { annotations: { other: "x" } } });
    t.equal(parseAdmissionReview(decoded).valid, true);
  }
  t.end();
});

await tap.test("decodeReview() builds nothing where a scalar has to be, and refuses the review", (t) => {
  for (const bytes of [0, LARGE]) {
    for (const field of ["apiVersion", "kind"]) {
      const crd = JSON.stringify({ ...whole, [field]: "BOMB" }).replace('"BOMB"', `[${"[],".repeat(100)}[]]`);
      const decoded = decodeReview(reviewText(crd, bytes)) as { request: { oldObject: object } };
      t.match(decoded.request.oldObject, { [field]: [] });
      t.equal(parseAdmissionReview(decoded).valid, false);
    }
  }
  t.end();
});

await tap.test("decodeReview() refuses a review with more versions, or more text, than any CRD has", (t) => {
  const versions = `{"spec":{"versions":[${"{},".repeat(REVIEW_BUDGET.maxValues)}{}]}}`;
  t.throws(() => decodeReview(reviewText(versions)), { name: "OverBudget" });
  const name = `{"metadata":{"name":"${"x".repeat(REVIEW_BUDGET.maxBytes)}"}}`;
  t.throws(() => decodeReview(reviewText(name)), { name: "OverBudget" });
  const begun = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5","oldObject":`;
  const bytes = Buffer.from(`${begun}${versions}}}`);
  const { answer, status } = reviewBody({ bytes, release: () => undefined }, { bodyLimit: 1 });
  t.equal(status, 200, "so that the API server hands the words to the user");
  t.match(answer.response, {
    uid: "705ab4f5",
    allowed: false,
    status: { code: 413, message: /more versions and conditions/ },
  });
  t.end();
});

await tap.test("decodeReview() refuses what is nested deeper than any CRD, and never parses it as a whole", (t) => {
  const deep = `{"spec":${"[".repeat(LARGE)}${"]".repeat(LARGE)}}`;
  t.throws(() => decodeReview(reviewText(deep)), { name: "SyntaxError" });
  t.end();
});
