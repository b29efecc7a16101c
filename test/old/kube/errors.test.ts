import tap from "tap";
import type { Status } from "../../../src/api/meta.ts";
import { KsvmError } from "../../../src/errors.ts";
import { isNotFound } from "../../../src/old/kube/absent.ts";
import { isConflict } from "../../../src/old/kube/client.ts";
import { ApiError, TransportError } from "../../../src/old/kube/errors.ts";
import {
  type FailureKind,
  failedWebhookOf,
  failureKindOf,
  isAdmissionDenial,
  isBrokenOff,
  isConversionRefusal,
  isInvalidGroupVersion,
  isReinitializing,
  isTimeout,
} from "../../../src/old/kube/failure.ts";
import { DeadlineExceeded } from "../../../src/old/kube/request-deadline.ts";

const status = (fields: Partial<Status>): Status => ({ kind: "Status", ...fields });

const codes: readonly [number, string][] = [
  [400, "ApiRequestFailed"],
  [401, "Unauthorized"],
  [403, "Forbidden"],
  [404, "NotFound"],
  [409, "Conflict"],
  [410, "ApiRequestFailed"],
  [500, "ApiRequestFailed"],
];

for (const [http, code] of codes) {
  await tap.test(`ApiError has code ${code} when the answer is ${http}`, (t) => {
    const error = new ApiError("GET /x", http, {});
    t.equal(error.code, code);
    t.equal(error.status, http);
    t.ok(error instanceof KsvmError);
    t.end();
  });
}

await tap.test("ApiError says what was asked and what the API server said", (t) => {
  const error = new ApiError("GET /x", 404, {
    answer: status({ message: 'widgets "a" not found', reason: "NotFound" }),
  });
  t.equal(error.message, 'Cannot GET /x: the API server answered 404: widgets "a" not found');
  t.equal(error.said, 'widgets "a" not found');
  t.equal(error.reason, "NotFound");
  const text = new ApiError("GET /x", 502, { text: ` ${"bad gateway ".repeat(1_000)}` });
  t.equal(text.reason, undefined);
  t.match(text.message, /answered 502: bad gateway/);
  t.ok(text.message.length < 600, "an HTML page does not fill the terminal");
  t.equal(new ApiError("GET /x", 500, {}).message, "Cannot GET /x: the API server answered 500: no message");
  t.end();
});

const retryCases: readonly [header: string | undefined, details: number | undefined, seconds: number | undefined][] = [
  ["7", undefined, 7],
  [undefined, 3, 3],
  ["7", 3, 7],
  ["0", undefined, 0],
  [undefined, undefined, undefined],
  ["-1", undefined, undefined],
  ["Wed, 21 Oct 2026 07:28:00 GMT", undefined, undefined],
];

for (const [header, details, seconds] of retryCases) {
  await tap.test(
    `ApiError.retryAfterSeconds is ${seconds} when the header is ${header}, the details ${details}`,
    (t) => {
      const answer = status(details === undefined ? {} : { details: { retryAfterSeconds: details } });
      const error = new ApiError("GET /x", 429, { answer, ...(header === undefined ? {} : { retryAfter: header }) });
      t.equal(error.retryAfterSeconds, seconds);
      t.end();
    },
  );
}

function secondsAt(time: string, serverTime: number): number | undefined {
  return new ApiError("GET /x", 503, { retryAfter: time, serverTime }).retryAfterSeconds;
}

await tap.test("ApiError.retryAfterSeconds counts to a date by the clock of who answered", (t) => {
  const now = Date.UTC(2026, 9, 21, 7, 28);
  t.equal(secondsAt("Wed, 21 Oct 2026 07:28:30 GMT", now), 30);
  t.equal(secondsAt("Wed, 21 Oct 2026 07:27:00 GMT", now), 0, "a date that has passed");
  t.equal(secondsAt("5", now), 5);
  t.equal(secondsAt("soon", now), undefined);
  t.equal(secondsAt("-5", now), undefined);
  t.end();
});

const causes: readonly [name: string, cause: unknown, words: string][] = [
  ["an error", new Error("reset"), "reset"],
  [
    "an error with a cause",
    new Error("fetch failed", { cause: new Error("ECONNREFUSED") }),
    "fetch failed: ECONNREFUSED",
  ],
  ["several errors", new AggregateError([new Error("ECONNREFUSED ::1"), new Error("other")]), "ECONNREFUSED ::1"],
  ["lines", new Error("one\n  two"), "one two"],
  ["no error", "text", "text"],
];

for (const [name, cause, words] of causes) {
  await tap.test(`TransportError shows what lies beneath when its cause is ${name}`, (t) => {
    const error = new TransportError("GET /x", "https://server", cause);
    t.equal(error.message, `Cannot GET /x: no answer from https://server: ${words}`);
    t.equal(error.code, "ServerUnreachable");
    t.equal(error.cause, cause);
    t.end();
  });
}

function answer(status: number, fields: Partial<Status> = {}): ApiError {
  return new ApiError("PATCH /x", status, { answer: { kind: "Status", ...fields } });
}

const AUTHORIZER = 'widgets.example.com "a" is forbidden: User "jane" cannot patch resource "widgets" in API group "e"';

const cases: readonly (readonly [name: string, error: unknown, kind: FailureKind | undefined])[] = [
  ["no answer", new TransportError("GET /x", "https://s", new Error("reset")), "transient"],
  ...[408, 425, 429, 500, 502, 503, 504].map((status) => [String(status), answer(status), "transient"] as const),
  ["429 of a handler that is being replaced", answer(429, { message: "storage is (re)initializing" }), "transient"],
  ["410", answer(410), "expired"],
  ["409", answer(409), "conflict"],
  ["404 that names an object", answer(404, { details: { name: "a" } }), "gone"],
  ["404 that names none", answer(404, { details: {} }), "unserved"],
  ["404 in plain text", new ApiError("GET /x", 404, { text: "404 page not found" }), "unserved"],
  ["401", answer(401), "denied"],
  ["401 after an API server accepted credentials", new ApiError("GET /x", 401, { wereAccepted: true }), "transient"],
  ["403 of the authorizer", answer(403, { message: AUTHORIZER }), "denied"],
  ["403 about a path", answer(403, { message: 'forbidden: User "jane" cannot get path "/version"' }), "denied"],
  ["403 of admission", answer(403, { message: 'admission webhook "x.io" denied the request: no' }), "rejected"],
  ["403 of an admission plugin", answer(403, { message: "exceeded quota: small" }), "rejected"],
  ["400", answer(400), "rejected"],
  ["405", answer(405), "rejected"],
  ["422", answer(422), "rejected"],
  [
    "500 that waiting never ends",
    answer(500, { message: "request to convert CR to an invalid group/version: example.com/v0" }),
    "rejected",
  ],
  [
    "500 about where an object comes from",
    answer(500, { message: "request to convert CR from an invalid group/version: example.com/v0" }),
    "rejected",
  ],
  [
    "500 of an apply on an object that does not fit its schema",
    answer(500, {
      message: "failed to create typed live object (default/a; e/v1, Kind=A): .spec.size: expected string",
    }),
    "rejected",
  ],
  ["a fault of this program", new TypeError("x is undefined"), undefined],
  ["another error of this program", new KsvmError("FreezeLifted", "lifted"), undefined],
  ["no error", undefined, undefined],
];

for (const [name, error, kind] of cases) {
  await tap.test(`failureKindOf() is ${kind} when it is ${name}`, (t) => {
    t.equal(failureKindOf(error), kind);
    t.end();
  });
}

const NOT_FOUND = { name: "g7", kind: "gadgets" };
const denials: readonly (readonly [message: string, isDenial: boolean])[] = [
  ['admission webhook "own.example.com" denied the request: gadgets "g7" not found', true],
  ['admission webhook "own.example.com" denied the request without explanation', true],
  ['admission webhook "own.example.com" denied the request: failed calling webhook "other.example.com": no', true],
  ['admission webhook "own.example.com" denied the request: storage is (re)initializing', true],
  ['admission webhook "own.example.com" denied the request: to convert CR to an invalid group/version: e/v0', true],
  ['admission webhook "own.example.com" denied the request: conversion webhook for e/v1, Kind=G failed: no', true],
  ["gadgets.example.com \"g7\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", true],
  ["gadgets.example.com \"g7\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no", true],
  ["ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", true],
  ['gadgets.example.com "g7" not found', false],
  ['Internal error occurred: failed calling webhook "own.example.com": Post "https://x": EOF', false],
  ['gadgets "admission webhook "x" denied the request" not found', false],
];

for (const [message, isDenial] of denials) {
  for (const code of [400, 401, 403, 404, 409, 410, 429, 500, 503]) {
    await tap.test(`isAdmissionDenial() is ${isDenial} whatever the code, here ${code}: ${message}`, async (t) => {
      for (const details of [undefined, NOT_FOUND]) {
        const error = answer(code, { message, reason: "NotFound", ...(details === undefined ? {} : { details }) });
        t.equal(isAdmissionDenial(error), isDenial);
        if (isDenial) {
          t.equal(failureKindOf(error), "rejected");
          t.notOk(isNotFound(error));
          t.notOk(isConflict(error));
          t.notOk(isReinitializing(error));
          t.notOk(isInvalidGroupVersion(error));
          t.notOk(isConversionRefusal(error));
          t.equal(failedWebhookOf(error), undefined);
        }
      }
    });
  }
}

await tap.test("isAdmissionDenial() is false when no API server answered", async (t) => {
  t.notOk(isAdmissionDenial(new Error('admission webhook "x" denied the request: no')));
});

await tap.test("isInvalidGroupVersion() knows the words of the API server", (t) => {
  t.equal(
    isInvalidGroupVersion(answer(500, { message: "request to convert CR to an invalid group/version: e/v0" })),
    true,
  );
  t.equal(isInvalidGroupVersion(answer(500, { message: "internal" })), false);
  t.equal(isInvalidGroupVersion(new Error("to an invalid group/version")), false);
  t.end();
});

const messages: readonly [message: string, webhook: string | undefined, isRefusal: boolean][] = [
  [
    'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: Post "https://x"',
    "a.example.com",
    false,
  ],
  [
    'conversion webhook for example.com/v1alpha1, Kind=Widget failed: Post "https://x": EOF',
    "conversion webhook for example.com/v1alpha1, Kind=Widget",
    false,
  ],
  ["conversion webhook for example.com/v1alpha1, Kind=Widget failed: w3 cannot be converted", undefined, true],
  ["conversion webhook for example.com/v1, Kind=Widget returned 1 objects, expected 2", undefined, true],
  ["etcdserver: request timed out", undefined, false],
];

await tap.test(
  "a 429 of a resource that is being set up is waiting for its conversion webhook, not overload",
  async (t) => {
    const setUp = answer(429, { message: "storage is (re)initializing" });
    t.match(failedWebhookOf(setUp), /^the conversion webhook/);
    t.ok(isReinitializing(setUp));
    t.notOk(isReinitializing(answer(429, { message: "Too many requests, please try again later." })));
  },
);

for (const [message, webhook, isRefusal] of messages) {
  await tap.test(`failedWebhookOf() and isConversionRefusal() judge: ${message}`, async (t) => {
    const error = new ApiError("GET /x", 500, { answer: { kind: "Status", message } });
    t.equal(failedWebhookOf(error), webhook);
    t.equal(isConversionRefusal(error), isRefusal);
    t.equal(failureKindOf(error), isRefusal ? "rejected" : "transient");
  });
}

const lost = (code: string): TransportError =>
  new TransportError("GET /x", "https://server", Object.assign(new Error("lost"), { code }));

await tap.test("isTimeout() is true when the API server, etcd or the deadline gave up on an answer", async (t) => {
  const message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
  t.ok(isTimeout(new ApiError("GET /x", 504, { text: "Gateway Timeout" })));
  t.ok(isTimeout(new ApiError("GET /x", 500, { answer: { kind: "Status", message } })));
  t.ok(
    isTimeout(new ApiError("GET /x", 500, { answer: { kind: "Status", message: "etcdserver: request timed out" } })),
  );
  t.ok(isTimeout(new TransportError("GET /x", "https://server", new DeadlineExceeded(70_000))));
  t.notOk(isTimeout(new ApiError("GET /x", 429, { answer: { kind: "Status", message } })), "that is overload");
  t.notOk(isTimeout(new ApiError("GET /x", 503, { text: "no endpoints" })));
  t.notOk(isTimeout(lost("ECONNRESET")));
  t.notOk(isTimeout(new Error("timeout")));
});

await tap.test("isBrokenOff() is true when a connection that there was broke", async (t) => {
  for (const code of ["UND_ERR_SOCKET", "ECONNRESET"]) t.ok(isBrokenOff(lost(code)), code);
  for (const code of ["ECONNREFUSED", "ENOTFOUND", ""]) t.notOk(isBrokenOff(lost(code)), code);
});
