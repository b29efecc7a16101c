import t from "tap";
import { systemClock } from "../../src/clock.ts";
import { Client } from "../../src/kube/client.ts";
import { ApiError, isAbsent, isForbidden, isInvalid, isTooMuch, type Whose, whose } from "../../src/kube/errors.ts";
import { Connection, type HttpAnswer, type HttpRequest } from "../../src/kube/http.ts";
import { retry } from "../../src/kube/retry.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();
const failureOf = (work: Promise<unknown>): Promise<unknown> => work.catch((error: unknown) => error);
const answer = (status: number, message: string, reason = ""): ApiError =>
  new ApiError("patch it", status, message, { answer: { kind: "Status", reason, message } });
const conversion = "conversion webhook for example.com/v1alpha1, Kind=Widget failed: ";

/** What API servers answer, in their own words, and whose failure it is. */
const TABLE: readonly (readonly [Whose, number, string, string?])[] = [
  ["object", 404, 'admission webhook "a.example.com" denied the request: no'],
  ["object", 409, 'admission webhook "a.example.com" denied the request without explanation'],
  ["object", 429, 'admission webhook "a.example.com" denied the request: slow down'],
  ["object", 500, 'admission webhook "a.example.com" denied the request: failed calling webhook "b": x509'],
  ["object", 422, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"],
  ["object", 403, "widgets.example.com \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no"],
  ["webhook", 500, 'Internal error occurred: failed calling webhook "a.example.com": connect: connection refused'],
  ["webhook", 500, 'Internal error occurred: failed calling webhook "a": no endpoints available for service "a"'],
  [
    "webhook",
    500,
    'failed calling webhook "a": failed to call webhook: the server is currently unable to handle the request',
  ],
  ["webhook", 500, `${conversion}Post "https://a/": dial tcp 127.0.0.1:1: connect: connection refused`],
  ["webhook", 500, `${conversion}Post "https://a/": tls: failed to verify certificate: x509: unknown authority`],
  ["webhook", 500, `${conversion}Post "https://a/": context deadline exceeded`],
  ["webhook", 500, `${conversion}the server is currently unable to handle the request`],
  ["webhook", 500, `${conversion}the server has received too many requests and has asked us to try again later`],
  ["webhook", 500, `${conversion}the server was unable to return a response in the time allotted`],
  ["webhook", 500, `${conversion}an error on the server ("bad gateway") has prevented the request from succeeding`],
  ["webhook", 429, "storage is (re)initializing", "TooManyRequests"],
  ["object", 429, "storage is (re)initializing: request to convert CR from an invalid group/version: example.com/v1"],
  ["object", 500, `${conversion}spec.size is no number`],
  ["object", 500, "conversion webhook for example.com/v1, Kind=Widget returned invalid metadata: x"],
  ["object", 500, "request to convert CR to an invalid group/version: example.com/v1alpha1"],
  ["object", 500, "failed to create typed live object: .spec.b: field not declared in schema"],
  ["object", 500, "etcdserver: request is too large"],
  ["object", 422, 'Widget.example.com "a" is invalid: spec.size: Invalid value', "Invalid"],
  ["object", 400, "the body is wrong", "BadRequest"],
  ["object", 403, 'widgets.example.com "a" is forbidden: quota exceeded', "Forbidden"],
  ["rights", 403, 'widgets.example.com is forbidden: User "a" cannot patch resource "widgets"', "Forbidden"],
  ["rights", 401, "Unauthorized", "Unauthorized"],
  ["conflict", 409, "the object has been modified", "Conflict"],
  ["gone", 404, 'widgets.example.com "a" not found', "NotFound"],
  ["expired", 410, "The provided continue parameter is too old", "Expired"],
  ["apiServer", 429, "too many requests"],
  ["apiServer", 500, "etcdserver: leader changed"],
  ["apiServer", 503, "the server is currently unable to handle the request"],
  ["apiServer", 504, "Timeout: request did not complete within requested timeout"],
  ["apiServer", 0, "no answer from https://a: connect ECONNREFUSED"],
  ["apiServer", 302, "it redirects to https://login"],
];

for (const [expected, status, message, reason] of TABLE) {
  await t.test(`${status} ${message} is about: ${expected}`, async (t) => {
    t.equal(whose(answer(status, message, reason)), expected);
  });
}

await t.test("what no request raised is nobody's failure", async (t) => {
  t.equal(whose(new TypeError("a fault of this program")), undefined);
  t.notOk(isForbidden(answer(403, "a page of a proxy: you cannot get resource here")), "a proxy's page is no refusal");
  t.notOk(isAbsent(answer(404, "404 page not found"), "a"), "a path that is not served proves nothing");
  t.ok(isInvalid(answer(422, "spec.size: Invalid value", "Invalid")));
  t.notOk(isInvalid(answer(422, 'admission webhook "a" denied the request: no', "Invalid")));
  t.ok(isTooMuch(answer(504, "Timeout")));
});

/** A client whose requests are answered one after the other. */
function clientFor(...answers: readonly (HttpAnswer | ApiError)[]): {
  client: Client;
  sent: HttpRequest[];
  clock: FakeClock;
} {
  const sent: HttpRequest[] = [];
  const clock = new FakeClock();
  const send = async (request: HttpRequest): Promise<HttpAnswer> => {
    const next = answers[sent.push(request) - 1] ?? answers.at(-1);
    if (next === undefined || next instanceof ApiError) throw next;
    return next;
  };
  return { client: new Client({ address: "https://a/base/", send, clock, random: () => 0.5 }), sent, clock };
}

const ok = (body: unknown, headers = {}): HttpAnswer => ({ status: 200, headers, text: JSON.stringify(body) });
const failed = (status: number, body: unknown, headers = {}): HttpAnswer => ({ ...ok(body, headers), status });

await t.test("a client sends what is asked, and reads what comes", async (t) => {
  const { client, sent } = clientFor(ok({ kind: "A" }, { date: "Thu, 01 Jan 2026 00:00:05 GMT" }));
  const { body, date } = await client.request("GET", "/x", { query: { limit: 5, none: undefined }, signal });
  t.same(body, { kind: "A" });
  t.equal(date, Date.parse("2026-01-01T00:00:05Z"));
  t.match(sent, [{ method: "GET", address: "https://a/base", path: "/x", query: { limit: "5" }, body: undefined }]);
  await client.patch("/x", { a: 1 }, { dryRun: true, fieldManager: "m", signal });
  t.match(sent[1], { query: { dryRun: "All", fieldManager: "m" }, body: '{"a":1}' });
  t.match(sent[1]?.headers, { "content-type": "application/merge-patch+json" });
  const connection = new Connection();
  await client.over(connection, "https://b").get("/x", { signal });
  t.match(sent[2], { address: "https://b" });
  t.equal(sent[2]?.connection, connection);
});

await t.test("an answer that no API server gives is none", async (t) => {
  for (const text of ["", "<html>secret</html>", '"text"', "null"]) {
    const { client } = clientFor({ status: 200, headers: {}, text });
    const error = await client.get("/x", { signal }).catch((thrown: unknown) => thrown as ApiError);
    t.match(error, { status: 0 });
    t.notMatch((error as ApiError).message, /secret/);
  }
  const { client } = clientFor(ok({ kind: "Widget", items: [] }));
  t.match(await failureOf(client.list("/x", { signal })), { status: 0 });
  const redirect = clientFor(failed(302, {}, { location: "https://user:password@login/x" }));
  const error = await redirect.client.get("/x", { signal }).catch((thrown: unknown) => thrown as ApiError);
  t.match(error, { status: 302, said: /redirects to https:\/\/…@login/ });
});

await t.test("a failure that may pass is tried again, as the API server asks", async (t) => {
  const busy = failed(429, { kind: "Status", message: "busy" }, { "retry-after": "7" });
  const { client, clock, sent } = clientFor(busy, failed(503, {}), ok({ kind: "A" }));
  t.same(await retry(client, () => client.get("/x", { signal }), { signal }), { kind: "A" });
  t.equal(sent.length, 3);
  t.equal(clock.sleeps[0], 7_000);
  const denied = clientFor(failed(422, { kind: "Status", reason: "Invalid", message: "no" }));
  const refused = await failureOf(retry(denied.client, () => denied.client.get("/x", { signal }), { signal }));
  t.match(refused, { status: 422 });
  t.equal(denied.sent.length, 1);
  const down = clientFor(failed(503, {}));
  const unavailable = await failureOf(
    retry(down.client, () => down.client.get("/x", { signal }), { signal, forMs: 60_000 }),
  );
  t.match(unavailable, { status: 503 });
  t.ok(down.clock.monotonic() >= 60_000 && down.clock.monotonic() < 70_000);
});

await t.test("an aborted wait ends with the reason of its signal", async (t) => {
  const abort = new AbortController();
  const { client } = clientFor(failed(503, {}));
  const waiting = retry({ clock: systemClock, random: () => 1 }, () => client.get("/x", { signal }), {
    signal: abort.signal,
  });
  setTimeout(() => abort.abort(new Error("stop")), 20);
  await t.rejects(waiting, { message: "stop" });
});
