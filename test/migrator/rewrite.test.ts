// What becomes of objects whose writes fail, on a clock that moves when everybody waits.
import t from "tap";
import { Client } from "../../src/kube/client.ts";
import type { HttpAnswer, HttpRequest } from "../../src/kube/http.ts";
import type { Crd, KubeObject } from "../../src/kube/objects.ts";
import { Pages } from "../../src/kube/pages.ts";
import { newRun, rewrite, type Run } from "../../src/migrator/attempts.ts";
import { type Target, targetOf } from "../../src/migrator/rewrite.ts";
import type { MigrateOptions, Tally } from "../../src/migrator/types.ts";
import { VirtualTime } from "./virtual-time.ts";

const { signal } = new AbortController();
const OLD = "example.com/v1alpha1";
const WEBHOOK_DOWN = 'Internal error occurred: failed calling webhook "a.example.com": connection refused';

const answer = (status: number, body: unknown): HttpAnswer => ({ status, headers: {}, text: JSON.stringify(body) });
const failure = (status: number, message: string): HttpAnswer => answer(status, { kind: "Status", message });

/** What an API server answers to a write instead of doing it. */
type Fault = (name: string, now: number) => HttpAnswer | undefined;

/** An API server with some objects that are stored in the old version. */
class ApiServer {
  readonly time = new VirtualTime();
  readonly client: Client;
  readonly writes: string[] = [];
  readonly #objects: Map<string, KubeObject>;
  readonly #fault: Fault;
  #resourceVersion = 1_000;

  constructor(names: readonly string[], fault: Fault) {
    this.#fault = fault;
    const managedFields = [{ manager: "m", operation: "Update", apiVersion: OLD, fieldsV1: { "f:spec": {} } }];
    const metadata = (name: string, n: number): KubeObject["metadata"] => ({
      name,
      namespace: "default",
      uid: `uid-${name}`,
      resourceVersion: String(n + 1),
      generation: 1,
      managedFields,
    });
    this.#objects = new Map(names.map((name, n) => [name, { metadata: metadata(name, n) }]));
    const send = (request: HttpRequest): Promise<HttpAnswer> => this.#answer(request);
    this.client = new Client({ address: "https://a", send, clock: this.time.clock, random: () => 0.5 });
  }

  async #answer({ body = "", method, path, query }: HttpRequest): Promise<HttpAnswer> {
    await this.time.sleep(10);
    if (method === "GET") {
      const name = query["fieldSelector"]?.split("=")[1];
      const items = [...this.#objects.values()].filter(({ metadata }) => name === undefined || metadata.name === name);
      return answer(200, { kind: "List", metadata: { resourceVersion: String(this.#resourceVersion) }, items });
    }
    const name = path.split("/").at(-1) ?? "";
    const fault = this.#fault(name, this.time.now);
    if (fault !== undefined) return fault;
    const found = this.#objects.get(name);
    const sent = JSON.parse(body) as KubeObject;
    const written = {
      metadata: { ...found?.metadata, ...sent.metadata, resourceVersion: String(++this.#resourceVersion) },
    };
    if (query["dryRun"] !== undefined) return answer(200, { metadata: { ...found?.metadata, ...sent.metadata } });
    this.#objects.set(name, written);
    this.writes.push(name);
    return answer(200, written);
  }
}

function crd(unserved: readonly string[] = []): Crd {
  const versions = ["v1alpha1", "v1"].map((name) => ({
    name,
    storage: name === "v1",
    served: !unserved.includes(name),
    schema: {},
  }));
  const spec = { group: "example.com", names: { plural: "widgets", kind: "Widget" }, scope: "Namespaced", versions };
  return { metadata: { name: "widgets.example.com", uid: "u", resourceVersion: "1", generation: 1 }, spec };
}

interface Rewritten {
  readonly server: ApiServer;
  readonly run: Run;
  readonly tally?: Tally;
  readonly error?: Error;
}

async function rewritten(names: readonly string[], fault: Fault, target: Target = targetOf(crd())): Promise<Rewritten> {
  const server = new ApiServer(names, fault);
  const options: MigrateOptions = { identity: "test", signal, onEvent: () => undefined };
  const run = newRun(server.client, "widgets.example.com", options);
  const work = rewrite(server.client, run, target, options).then(
    (tally) => ({ tally }),
    (error: Error) => ({ error }),
  );
  await server.time.until(work);
  return { server, run, ...(await work) };
}

const NAMES = Array.from({ length: 50 }, (_, n) => `w${n}`);
const MINUTE = 60_000;

for (const [what, message, status] of [
  ["an API server", "etcdserver: leader changed", 500],
  ["an API server behind a proxy", "bad gateway", 502],
] as const) {
  await t.test(`an outage of a minute of ${what} names no object as failed`, async (t) => {
    const { server, tally } = await rewritten(NAMES, (_, now) =>
      now > 25 && now < MINUTE ? failure(status, message) : undefined,
    );
    t.match(tally, { rewritten: 50, failed: 0, changed: 0 });
    t.equal(new Set(server.writes).size, 50);
    t.ok(server.time.now > MINUTE);
  });
}

for (const [what, status, message] of [
  ["for which a webhook times out", 500, WEBHOOK_DOWN],
  ["that the API server cannot handle", 500, "panic"],
] as const) {
  await t.test(`an object ${what} is named while another one can be written`, async (t) => {
    const { server, tally } = await rewritten(NAMES, (name) => (name === "w49" ? failure(status, message) : undefined));
    t.match(tally, { rewritten: 49, failed: 1, failures: [{ name: "w49", reason: message }] });
    t.ok(server.time.now > 30_000 && server.time.now < MINUTE);
  });
}

await t.test("a webhook that is down for all objects ends the attempt, and no object is named", async (t) => {
  const { error, server } = await rewritten(NAMES, (_, now) => (now > 25 ? failure(500, WEBHOOK_DOWN) : undefined));
  t.match(error, { message: /failed calling webhook/ });
  t.ok(server.time.now < MINUTE);
});

await t.test("rights that are lost in mid-run end the attempt, and no object is named", async (t) => {
  const refusal = 'widgets.example.com is forbidden: User "a" cannot patch resource "widgets"';
  const { error } = await rewritten(NAMES, (_, now) => (now > 25 ? failure(403, refusal) : undefined));
  t.match(error, { code: "Forbidden" });
});

await t.test("without progress for five minutes an attempt ends, and says why", async (t) => {
  const { error, run, server } = await rewritten(NAMES, (_, now) => (now > 25 ? failure(503, "busy") : undefined));
  t.match(error, { name: "Stalled", message: /nothing was rewritten for 5 minutes; the last failure: .*busy/ });
  t.ok(server.time.now > 5 * MINUTE && server.time.now < 6 * MINUTE);
  t.ok(run.progressAt < 1_000);
});

await t.test("objects that are all refused bring the run no further, and each is named", async (t) => {
  const { run, tally } = await rewritten(NAMES, () => failure(400, "no"));
  t.match(tally, { rewritten: 0, failed: 50 });
  t.equal(run.progressAt, 0);
});

await t.test("what an earlier attempt rewrote to its end is not listed again", async (t) => {
  const server = new ApiServer(NAMES, () => undefined);
  const options: MigrateOptions = { identity: "test", signal, onEvent: () => undefined };
  const run = newRun(server.client, "widgets.example.com", options);
  const resume = { epoch: "a/1", purpose: "a", watermark: "1", isDone: true };
  t.match(await rewrite(server.client, run, targetOf(crd()), options, { resume }), { total: 0, rewritten: 0 });
  t.equal(server.writes.length, 0);
});

await t.test("managedFields are counted by the storage version, also where it is not served", async (t) => {
  const { tally } = await rewritten(["w0"], () => undefined, targetOf(crd(["v1"])));
  t.match(tally, { rewritten: 1, changed: 0 });
  t.strictSame(tally?.fieldVersions, {});
});

await t.test("continue tokens that expire now and then end no list", async (t) => {
  let n = 0;
  const time = new VirtualTime();
  const send = async ({ query }: HttpRequest): Promise<HttpAnswer> => {
    const next = { resourceVersion: "1", continue: `token-${n}` };
    const isExpired = query["continue"] !== undefined && n++ % 2 === 0;
    if (isExpired) return answer(410, { kind: "Status", reason: "Expired", message: "too old", metadata: next });
    return answer(200, { kind: "List", metadata: next, items: [] });
  };
  const pages = new Pages(
    new Client({ address: "https://a", send, clock: time.clock, random: () => 0 }),
    ["/x"],
    signal,
  );
  for (let page = 0; page < 60; page++) await pages.list(page === 0 ? undefined : `given-${page}`);
  t.ok(n > 100);

  const refuse = async ({ query }: HttpRequest): Promise<HttpAnswer> =>
    query["continue"] === undefined
      ? answer(200, { kind: "List", metadata: { resourceVersion: "1", continue: "a" }, items: [] })
      : answer(400, { kind: "Status", message: "a proxy knows no token" });
  const endless = new Pages(
    new Client({ address: "https://a", send: refuse, clock: time.clock, random: () => 0 }),
    ["/x"],
    signal,
  );
  const list = async (): Promise<void> => {
    for (let page = 0; page < 60; page++) await endless.list("a");
  };
  await t.rejects(list(), { message: /a proxy knows no token/ });
});
