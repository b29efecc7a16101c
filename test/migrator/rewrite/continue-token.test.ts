import tap from "tap";

import { ApiError, TransportError } from "../../../src/kube/errors.ts";
import { isTokenFailure, nextTokenAfter } from "../../../src/migrator/rewrite/continue-token.ts";

const failed = (status: number, token?: string): ApiError =>
  new ApiError("GET /x", status, {
    answer: { kind: "Status", code: status, ...(token === undefined ? {} : { metadata: { continue: token } }) },
  });

await tap.test("isTokenFailure() is true only for 400 and 410", (t) => {
  for (const status of [400, 401, 403, 404, 409, 410, 429, 500]) {
    t.equal(isTokenFailure(failed(status)), status === 400 || status === 410, String(status));
  }
  t.equal(isTokenFailure(new TransportError("GET /x", "https://s", new Error("reset"))), false);
  t.equal(isTokenFailure(undefined), false);
  t.end();
});

const cases: readonly [name: string, error: ApiError, next: string | undefined][] = [
  ["the one that the 410 carries", failed(410, "inconsistent"), "inconsistent"],
  ["the first page when the 410 carries none", failed(410), undefined],
  ["the first page when the 410 carries an empty one", failed(410, ""), undefined],
  ["the first page when the 410 carries the refused one", failed(410, "refused"), undefined],
  ["the first page when a 400 carries one", failed(400, "inconsistent"), undefined],
  ["the first page when the body was no Status", new ApiError("GET /x", 410, { text: "gone" }), undefined],
];

for (const [name, error, next] of cases) {
  await tap.test(`nextTokenAfter() is ${name}`, (t) => {
    t.equal(nextTokenAfter(error, "refused"), next);
    t.end();
  });
}
