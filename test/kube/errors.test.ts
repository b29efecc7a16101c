import tap from "tap";

import type { Status } from "../../src/api/meta.ts";
import { KsvmError } from "../../src/errors.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";

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
