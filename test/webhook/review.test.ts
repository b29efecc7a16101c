import tap from "tap";
import { reviewBody } from "../../src/webhook/review.ts";
import { crdWith, FROZEN, reviewOf } from "../freeze/freeze-rule-crd.ts";

const CRD = crdWith({ annotations: FROZEN });

await tap.test("reviewBody() takes an update", (t) => {
  t.match(reviewBody(reviewOf(CRD, crdWith({ versions: { v2: true } }))), {
    status: 200,
    decision: "denied",
    crdName: "widgets.example.com",
    answer: {
      response: {
        uid: "705ab4f5",
        allowed: false,
        auditAnnotations: { "storage-version": "v1", "requested-storage-version": "v2" },
      },
    },
  });
  t.match(reviewBody(reviewOf(CRD, CRD)), { decision: "allowed" });
  t.end();
});

const { request } = reviewOf(CRD, CRD) as { request: Record<string, unknown> };
const reviewWith = (change: object): unknown => ({ ...reviewOf(CRD, CRD), ...change });
const withRequest = (change: object): unknown => reviewWith({ request: { ...request, ...change } });
const withOld = (change: object): unknown => withRequest({ oldObject: { ...CRD, ...change } });
const withVersions = (versions: unknown): unknown => withOld({ spec: { versions } });
const withMetadata = (change: object): unknown => withOld({ metadata: { ...CRD.metadata, ...change } });

const API_VERSION = 'apiVersion must be "admission.k8s.io/v1"';
const UID = "request.uid must be a non-empty string";
const NO_CRD = "must be a CustomResourceDefinition of apiextensions.k8s.io/v1";
const VERSIONS = "request.oldObject.spec.versions must be an array of versions";
const ANNOTATIONS = "request.oldObject.metadata.annotations must be an object of strings";

const refused: readonly [body: unknown, problem: string, uid?: string][] = [
  [undefined, API_VERSION, ""],
  [null, API_VERSION, ""],
  ["review", API_VERSION, ""],
  [[], API_VERSION, ""],
  [reviewWith({ apiVersion: "admission.k8s.io/v1beta1" }), API_VERSION],
  [reviewWith({ kind: "ConversionReview" }), 'kind must be "AdmissionReview"'],
  [reviewWith({ request: undefined }), UID, ""],
  [reviewWith({ request: null }), UID, ""],
  [withRequest({ uid: undefined }), UID, ""],
  [withRequest({ uid: 7 }), UID, ""],
  [withRequest({ uid: "" }), UID, ""],
  [withRequest({ operation: "DELETE" }), 'request.operation must be "UPDATE"'],
  [withRequest({ object: null }), `request.object ${NO_CRD}`],
  [withRequest({ oldObject: undefined }), `request.oldObject ${NO_CRD}`],
  [withRequest({ oldObject: null }), `request.oldObject ${NO_CRD}`],
  [withOld({ kind: "Pod" }), `request.oldObject ${NO_CRD}`],
  [withOld({ apiVersion: "apiextensions.k8s.io/v1beta1" }), `request.oldObject ${NO_CRD}`],
  [withOld({ metadata: undefined }), "request.oldObject.metadata.name must be a non-empty string"],
  [withMetadata({ name: "" }), "request.oldObject.metadata.name must be a non-empty string"],
  [withMetadata({ annotations: ["a"] }), ANNOTATIONS],
  [withMetadata({ annotations: { a: true } }), ANNOTATIONS],
  [withOld({ spec: null }), VERSIONS],
  [withVersions(undefined), VERSIONS],
  [withVersions({ 0: "v1" }), VERSIONS],
  [withVersions(["v1"]), VERSIONS],
  [
    withVersions([
      { name: "v1", storage: true },
      { name: 2, storage: false },
    ]),
    VERSIONS,
  ],
  [withVersions([{ name: "v1" }]), VERSIONS],
  [withVersions([{ name: "v1", storage: "true" }]), VERSIONS],
];

await tap.test("reviewBody() refuses what is no update of a CRD, and says which field is wrong", (t) => {
  for (const [body, problem, uid = "705ab4f5"] of refused) {
    const message = `Cannot read the AdmissionReview: ${problem}`;
    t.same(
      reviewBody(body),
      {
        status: 400,
        decision: "invalid",
        answer: {
          apiVersion: "admission.k8s.io/v1",
          kind: "AdmissionReview",
          response: { uid, allowed: false, status: { code: 400, reason: "BadRequest", message } },
        },
      },
      problem,
    );
  }
  t.end();
});
