import { Readable } from "node:stream";
import { pino } from "pino";
import tap from "tap";
import { MANAGED_BY, MANAGED_BY_LABEL, WEBHOOK_NAME } from "../../src/api/names.ts";
import { serverNameOf } from "../../src/certs/service-names.ts";
import { systemClock } from "../../src/clock.ts";
import { publishedBundleOf } from "../../src/certs/ca-bundle.ts";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { distrustOf } from "../../src/certs/trust-chain.ts";
import { WebhookPart } from "../../src/controller/webhook-part.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { Loop } from "../../src/observability/loops.ts";
import { Metrics } from "../../src/observability/metrics.ts";
import type { ServingCertificate } from "../../src/webhook/serving-certificate.ts";
import { SETTINGS } from "../integration/certs-fixture.ts";
import { type IssuedServing, issueServing } from "../webhook/issue-serving.ts";

const BASE = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/** The name by which API servers call. */
const CALLED = serverNameOf(SETTINGS);
const EARLIER = "ksvm-webhook-tls";

interface Stored {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly webhooks?: readonly { readonly clientConfig?: object }[];
}

/** What a Secret holds: a CA and a pair, each of which may be empty. */
type Kept = Pick<IssuedServing, "caPem" | "pair">;

/** A stand-in for an API server: it merges what is applied, tells every watch, and gives each replica the Secret that the test says. */
class Cluster {
  /** The CA and the pair of the Secret as a replica finds it; `undefined` where there is no Secret, `"empty"` where nothing is in it. */
  readonly secrets: (Kept | "empty" | undefined)[] = [];
  /** Those of the Secret. */
  labels: Readonly<Record<string, string>> = { [MANAGED_BY_LABEL]: MANAGED_BY };
  /** The Secret of an earlier version. */
  earlier: Kept | undefined;
  /** What each replica serves. */
  readonly served: ServingCertificate[] = [];
  /** How often each replica woke what keeps the certificates. */
  readonly wakes: number[] = [];
  /** How often the configuration of the freeze was written. */
  writes = 0;
  #resourceVersion = 1;
  #secretVersion = 1;
  /** As the manifests install it, without a webhook yet: what is missing comes back later. */
  readonly #objects = new Map<string, Stored>([
    [`${BASE}/${WEBHOOK_NAME}`, { metadata: { name: WEBHOOK_NAME, resourceVersion: "1" }, webhooks: [] }],
  ]);
  readonly #watches: Readable[] = [];
  readonly #secretWatches = new Map<number, Readable>();

  get caBundle(): string {
    return publishedBundleOf(this.#objects.get(`${BASE}/${WEBHOOK_NAME}`) as never) ?? "";
  }

  /** Where API servers call. */
  get url(): string | undefined {
    const [webhook] = this.#objects.get(`${BASE}/${WEBHOOK_NAME}`)?.webhooks ?? [];
    const { url } = { url: undefined, ...webhook?.clientConfig };
    return url;
  }

  /** Another client empties the configuration. */
  emptyConfiguration(): void {
    this.#setWebhooks(() => []);
  }

  /** Another client changes how API servers call. */
  setClientConfig(change: { readonly caBundle?: string; readonly url?: string }): void {
    this.#setWebhooks((webhooks) =>
      webhooks.map((one) => ({ ...one, clientConfig: { ...one.clientConfig, ...change } })),
    );
  }

  #setWebhooks(change: (before: NonNullable<Stored["webhooks"]>) => Stored["webhooks"]): void {
    const before = this.#objects.get(`${BASE}/${WEBHOOK_NAME}`);
    const metadata = { name: WEBHOOK_NAME, ...before?.metadata, resourceVersion: `${++this.#resourceVersion}` };
    const object: Stored = { ...before, metadata, webhooks: change(before?.webhooks ?? []) ?? [] };
    this.#objects.set(`${BASE}/${WEBHOOK_NAME}`, object);
    for (const watch of this.#watches) watch.push(`${JSON.stringify({ type: "MODIFIED", object })}\n`);
  }

  client(replica: number): ApiClient {
    const request = async (asked: ApiRequest): Promise<unknown> => {
      await systemClock.sleep(1);
      return { status: 200, body: this.#answer(replica, asked), serverTime: Date.now() };
    };
    const stream = async ({ path, signal }: ApiRequest): Promise<Readable> => {
      const body = new Readable({ read: () => undefined });
      signal?.addEventListener("abort", () => body.destroy());
      if (path === BASE) this.#watches.push(body);
      if (path.endsWith("/secrets")) this.#secretWatches.set(replica, body);
      return body;
    };
    return new ApiClient({ server: "https://stand-in", request, stream } as unknown as Transport);
  }

  /** Writes the Secret, which the watch of each replica shows. */
  putSecret(issued: Kept): void {
    this.secrets.fill(issued);
    this.#secretVersion++;
    this.showSecret();
  }

  /** The watch of each replica shows the Secret once more. */
  showSecret(): void {
    for (const [replica, watch] of this.#secretWatches) {
      watch.push(`${JSON.stringify({ type: "MODIFIED", object: this.#secret(replica, SETTINGS.secret) })}\n`);
    }
  }

  /** Why API servers refuse what a replica serves. */
  distrustOf(replica: number): string | undefined {
    const { certPem = "" } = this.served[replica]?.current ?? {};
    return distrustOf({ caBundle: this.caBundle, certPem, now: Date.now() });
  }

  #answer(replica: number, { method, path, body }: ApiRequest): object {
    if (path.includes("/secrets/")) return this.#secret(replica, path);
    if (method === "PATCH") return this.#apply(path, body as Stored);
    const found = this.#objects.get(path);
    const name = path.split("/").at(-1) ?? "";
    if (found === undefined && !/(configurations|policies|policybindings)$/.test(name)) throw missing(path, name);
    return found ?? { metadata: { resourceVersion: `${this.#resourceVersion}` }, items: [] };
  }

  #secret(replica: number, path: string): object {
    const name = path.split("/").at(-1) ?? "";
    const issued = name === EARLIER ? this.earlier : this.secrets[replica];
    if (issued === undefined) throw missing(path, name);
    const texts =
      issued === "empty"
        ? {}
        : { "tls.crt": issued.pair.certPem, "tls.key": issued.pair.keyPem, "ca.crt": issued.caPem };
    const data = Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, btoa(text)]));
    const metadata = { name, resourceVersion: `${this.#secretVersion}`, labels: this.labels };
    return { type: "Opaque", metadata, data };
  }

  #apply(path: string, change: Stored): object {
    const before = this.#objects.get(path);
    const { resourceVersion: expected } = change.metadata;
    if (expected !== undefined && before !== undefined && expected !== before.metadata.resourceVersion) {
      throw new ApiError(`PATCH ${path}`, 409, { answer: { kind: "Status", reason: "Conflict" } });
    }
    const [was = {}] = before?.webhooks ?? [];
    const webhooks = change.webhooks?.map((one) => {
      const clientConfig = { ...(was as { clientConfig?: object }).clientConfig, ...one.clientConfig };
      return { ...was, ...one, clientConfig };
    });
    const metadata = { ...before?.metadata, ...change.metadata, resourceVersion: `${++this.#resourceVersion}` };
    const object = { ...before, ...change, metadata, ...(webhooks === undefined ? {} : { webhooks }) };
    this.#objects.set(path, object);
    if (path === `${BASE}/${WEBHOOK_NAME}`) {
      this.writes++;
      for (const watch of this.#watches) watch.push(`${JSON.stringify({ type: "MODIFIED", object })}\n`);
    }
    return object;
  }
}

function missing(path: string, name: string): ApiError {
  return new ApiError(`GET ${path}`, 404, { answer: { kind: "Status", reason: "NotFound", details: { name } } });
}

async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; !condition() && turn < 500; turn++) await systemClock.sleep(20);
}

/**
 * The part of a replica.
 * @param drained when its server has answered the last review, once it was told to stop. @default at once
 * @param url where API servers call it. @default the Service
 * @returns what stops it
 */
function startPart(
  cluster: Cluster,
  replica: number,
  { drained = Promise.resolve(), url }: { readonly drained?: Promise<void>; readonly url?: string } = {},
): () => Promise<void> {
  const part = new WebhookPart({
    client: cluster.client(replica),
    clock: systemClock,
    logger: pino({ level: "silent" }),
    metrics: new Metrics(),
    progressOf: () => undefined,
    loops: { add: () => new Loop(systemClock, Number.POSITIVE_INFINITY, () => undefined) },
    settings: {
      certificates: { ...SETTINGS, takeOverFrom: EARLIER },
      webhook: { host: "127.0.0.1", port: 0, certificates: "own", certDir: "", drainMs: 0, url },
    },
    lost: { wake: () => void (cluster.wakes[replica] = (cluster.wakes[replica] ?? 0) + 1) },
    startServer: async ({ certificate }) => {
      cluster.served[replica] = certificate;
      return { url: "https://a", port: 1, ready: () => undefined, close: () => drained };
    },
  });
  const stop = new AbortController();
  const ended = part.run(stop.signal);
  return async () => {
    stop.abort();
    await ended;
  };
}

for (const left of [undefined, "empty"] as const) {
  await tap.test(
    `replicas that know different CAs agree on a caBundle while the Secret is ${left ?? "missing"}, and take that of the Secret once it is back`,
    async (t) => {
      const cluster = new Cluster();
      const [first, second] = [await issueServing(CALLED), await issueServing(CALLED)];
      const stops: (() => Promise<void>)[] = [];
      t.teardown(() => Promise.all(stops.map((stop) => stop())));
      // One after the other, as where the first one missed a rotation.
      for (const [replica, issued] of [first, second].entries()) {
        cluster.secrets[replica] = issued;
        stops.push(startPart(cluster, replica));
        await until(() => cluster.caBundle === issued.caBundle);
        t.equal(cluster.caBundle, issued.caBundle);
        cluster.secrets.fill(left);
      }
      await systemClock.sleep(1_500);
      const before = cluster.writes;
      await systemClock.sleep(1_000);
      t.equal(cluster.writes, before, "none of them writes it any more");
      const both = [first, second].map(({ caPem }) => caPem);
      const trusted = atob(cluster.caBundle);
      for (const caPem of both) t.ok(trusted.includes(caPem), "API servers trust what each of them serves");
      cluster.putSecret(second);
      await until(() => cluster.caBundle === second.caBundle);
      t.equal(cluster.caBundle, second.caBundle);
    },
  );
}

await tap.test("replicas agree on a caBundle where one of them serves the Secret of an earlier version", async (t) => {
  const cluster = new Cluster();
  const good = await issueServing(CALLED);
  cluster.secrets.push(good, good);
  const stops = [startPart(cluster, 0), startPart(cluster, 1)];
  t.teardown(() => Promise.all(stops.map((stop) => stop())));
  await until(() => [0, 1].every((replica) => cluster.distrustOf(replica) === undefined));
  // The Secret is deleted, and a replica starts that never saw it.
  cluster.secrets.fill(undefined);
  cluster.secrets.push(undefined);
  cluster.earlier = await issueServing(CALLED);
  stops.push(startPart(cluster, 2));
  await until(() => cluster.served[2]?.current !== undefined);
  await systemClock.sleep(1_500);
  const { writes } = cluster;
  await systemClock.sleep(1_000);
  t.equal(cluster.writes, writes, "none of them writes it any more");
  t.equal(cluster.served[2]?.current?.certPem, cluster.earlier.pair.certPem);
  t.same(
    [0, 1, 2].map((replica) => cluster.distrustOf(replica)),
    [undefined, undefined, undefined],
  );
});

await tap.test(
  "API servers go on calling where they do while what a replica serves lacks the name of its URL",
  async (t) => {
    const cluster = new Cluster();
    const [before, after] = ["https://a.example.com/validate", "https://b.example.com/validate"];
    const good = await issueServing("a.example.com");
    cluster.secrets.push(good, good);
    const stops = [startPart(cluster, 0, { url: before })];
    t.teardown(() => Promise.all(stops.map((stop) => stop())));
    await until(() => cluster.url === before);
    stops.push(startPart(cluster, 1, { url: after }));
    await until(() => cluster.served[1]?.current !== undefined);
    const { writes } = cluster;
    await systemClock.sleep(1_500);
    t.equal(cluster.writes, writes, "nobody writes it");
    t.equal(cluster.url, before);
    await stops.shift()?.();
    cluster.setClientConfig({ url: "https://c.example.com/validate" });
    await until(() => cluster.url === after);
    t.equal(cluster.url, after, "nothing that is served here is for the name that another client wrote");
    cluster.setClientConfig({ url: before });
    await systemClock.sleep(500);
    t.equal(cluster.url, before);
    cluster.putSecret(await issueServing("a.example.com", "b.example.com"));
    await until(() => cluster.url === after);
    t.equal(cluster.url, after, "once it has the name");
  },
);

await tap.test("a replica that has no pair leaves it to others where API servers call", async (t) => {
  const cluster = new Cluster();
  const [before, after] = ["https://a.example.com/validate", "https://b.example.com/validate"];
  const good = await issueServing("a.example.com");
  cluster.secrets.push(good, { caPem: good.caPem, pair: { certPem: "", keyPem: "" } });
  const stops = [startPart(cluster, 0, { url: before }), startPart(cluster, 1, { url: after })];
  t.teardown(() => Promise.all(stops.map((stop) => stop())));
  await until(() => cluster.url !== undefined);
  const { writes } = cluster;
  await systemClock.sleep(1_500);
  t.equal(cluster.url, before);
  t.equal(cluster.writes, writes);
});

await tap.test("replicas take nothing from a Secret that another owner filled", async (t) => {
  const cluster = new Cluster();
  const good = await issueServing(CALLED);
  cluster.secrets.push(good);
  const stop = startPart(cluster, 0);
  t.teardown(stop);
  await until(() => cluster.distrustOf(0) === undefined);
  cluster.labels = {};
  cluster.putSecret(await issueServing(CALLED));
  await systemClock.sleep(1_500);
  t.equal(cluster.served[0]?.current?.certPem, good.pair.certPem);
  t.equal(cluster.caBundle, good.caBundle);
  cluster.secrets.push(cluster.secrets[0]);
  cluster.earlier = await issueServing(CALLED);
  const stopOther = startPart(cluster, 1);
  t.teardown(stopOther);
  await systemClock.sleep(1_500);
  t.equal(cluster.served[1]?.current, undefined, "nor is the Secret of an earlier version taken in its place");
  t.equal(cluster.caBundle, good.caBundle);
});

/** Of another CA, and expired an hour ago. */
async function issueExpired(): Promise<Kept> {
  const issued = { now: new Date(Date.now() - 7_200_000), lifetimeMs: 3_600_000 };
  const { caPem, ...pair } = await issueSelfSigned({ dnsNames: [CALLED], ipAddresses: [], ...issued });
  return { caPem, pair };
}

const damages: readonly [what: string, damage: (kept: Kept) => Promise<Kept>][] = [
  ["is overwritten with a copy that has expired", issueExpired],
  ["gets another ca.crt", async ({ pair }) => ({ pair, caPem: (await issueServing(CALLED)).caPem })],
  ["is overwritten with that of another installation", () => issueServing("ksvm-webhook.another.svc")],
  [
    "gets a pair that its ca.crt has not signed",
    async ({ caPem }) => ({ caPem, pair: (await issueServing(CALLED)).pair }),
  ],
  ["loses tls.crt and tls.key", async ({ caPem }) => ({ caPem, pair: { certPem: "", keyPem: "" } })],
];

for (const [what, damage] of damages) {
  await tap.test(
    `where the Secret ${what}, API servers trust what is served, and what keeps the certificates is woken once`,
    async (t) => {
      const cluster = new Cluster();
      const good = await issueServing(CALLED);
      cluster.secrets.push(good, good, good);
      const stops = [startPart(cluster, 0), startPart(cluster, 1)];
      t.teardown(() => Promise.all(stops.map((stop) => stop())));
      await until(() => [0, 1].every((replica) => cluster.distrustOf(replica) === undefined));
      t.same([cluster.caBundle, cluster.wakes], [good.caBundle, []], "negative control: nothing was lost");
      const damaged = await damage(good);
      cluster.putSecret(damaged);
      await systemClock.sleep(1_000);
      // One that starts now may have nothing that it could serve.
      stops.push(startPart(cluster, 2));
      await systemClock.sleep(1_500);
      const { writes } = cluster;
      cluster.showSecret();
      await systemClock.sleep(1_000);
      t.equal(cluster.writes, writes, "none of them writes the caBundle any more");
      t.same(
        cluster.served.slice(0, 2).map(({ current }) => current),
        [good.pair, good.pair],
      );
      t.same([cluster.distrustOf(0), cluster.distrustOf(1)], [undefined, undefined]);
      t.ok(atob(cluster.caBundle).includes(damaged.caPem), "what may be issued next is trusted as well");
      t.same(cluster.wakes, [1, 1, 1], "once, not at every look");
      for (const caBundle of ["", Buffer.from(damaged.caPem).toString("base64")]) {
        cluster.setClientConfig({ caBundle });
        await until(() => [0, 1].every((replica) => cluster.distrustOf(replica) === undefined));
        t.same([cluster.distrustOf(0), cluster.distrustOf(1)], [undefined, undefined], "another client wrote it");
      }
      const repaired = await issueServing(CALLED);
      cluster.putSecret(repaired);
      await until(() => cluster.caBundle === repaired.caBundle);
      t.equal(cluster.caBundle, repaired.caBundle, "CAs that the Secret does not have any more are gone");
      t.same(cluster.wakes, [1, 1, 1]);
    },
  );
}

await tap.test("a replica that is told to stop restores nothing any more, also while it drains", async (t) => {
  const cluster = new Cluster();
  const issued = await issueServing(CALLED);
  cluster.secrets[0] = issued;
  const drained = Promise.withResolvers<void>();
  const stop = startPart(cluster, 0, { drained: drained.promise });
  await until(() => cluster.caBundle === issued.caBundle);
  cluster.emptyConfiguration();
  await until(() => cluster.caBundle === issued.caBundle);
  t.equal(cluster.caBundle, issued.caBundle, "negative control: one that runs restores it");
  const stopped = stop();
  const { writes } = cluster;
  cluster.emptyConfiguration();
  await systemClock.sleep(1_000);
  t.equal(cluster.writes, writes);
  drained.resolve();
  await stopped;
});
