import { X509Certificate } from "node:crypto";
import { pino } from "pino";
import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import { type BundleHolder, publishedBundleOf } from "../../src/certs/ca-bundle.ts";
import { ensureCertificates } from "../../src/certs/ensure.ts";
import type { EnsureOptions } from "../../src/certs/ensure-options.ts";
import { issueCa, issueServing } from "../../src/certs/issue.ts";
import { keepCertificates } from "../../src/certs/keep-certificates.ts";
import { SWITCHED_ANNOTATION } from "../../src/certs/secret-contents.ts";
import { dnsNamesOf } from "../../src/certs/service-names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { Waker } from "../../src/retry/waker.ts";
import { FakeClock } from "../fake-clock.ts";
import { ManualClock } from "../manual-clock.ts";

const DAY_MS = 86_400_000;
const SETTINGS = {
  namespace: "ns",
  service: "webhook",
  secret: "tls",
  webhookConfiguration: "ksvm",
  caLifetimeMs: 365 * DAY_MS,
  servingLifetimeMs: 90 * DAY_MS,
  timeoutMs: 1_000,
  renewBefore: 1 / 3,
  apiServerDwellMs: 0,
  replicaDwellMs: 0,
};
const clockStart = Date.parse("2026-01-01T00:00:00Z");
const [now, lifetimeMs] = [new Date(clockStart), 300 * DAY_MS];
const [old, next] = await Promise.all([issueCa({ now, lifetimeMs }), issueCa({ now, lifetimeMs })]);
const names = { dnsNames: dnsNamesOf(SETTINGS), ipAddresses: [] };
const serving = await issueServing({ ca: old, now, lifetimeMs: 90 * DAY_MS, ...names });
const CURRENT = { "tls.crt": serving.certPem, "tls.key": serving.keyPem, "ca.crt": old.certPem, "ca.key": old.keyPem };
/** What replicas serve, and the Secret does not have. */
const served = await issueCa({ now, lifetimeMs });
const servedPair = await issueServing({ ca: served, now, lifetimeMs: 90 * DAY_MS, ...names });
/** Of another installation: its CA signed for its own names. */
const foreignPair = await issueServing({ ca: old, now, lifetimeMs: 90 * DAY_MS, dnsNames: ["a.svc"], ipAddresses: [] });
const FOREIGN = { ...CURRENT, "tls.crt": foreignPair.certPem, "tls.key": foreignPair.keyPem };
/** In the middle of a rotation: the next step notes that every API server trusts both CAs. */
const ROTATING = {
  ...CURRENT,
  "ca.crt": old.certPem + next.certPem,
  "next-ca.crt": next.certPem,
  "next-ca.key": next.keyPem,
};

function dataOf(texts: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, btoa(text)]));
}

/**
 * A stand-in for an API server and for another client that puts the Secret back after each write: against a real one the
 * test would race it. It counts what it is asked.
 * @param cas the CAs in the caBundle. @default there is no webhook configuration
 * @param isKept whether what is written to the Secret stays
 */
function setting(texts: Readonly<Record<string, string>>, cas?: readonly string[], isKept = false) {
  const clock = new FakeClock(clockStart);
  const requests: { readonly method: string; readonly at: number }[] = [];
  const data = dataOf(texts);
  const labels = { "app.kubernetes.io/managed-by": "ksvm" };
  let secret: { readonly data: Readonly<Record<string, string>> } & object = {
    data,
  };
  const metadata = { namespace: "ns", name: "tls", labels, resourceVersion: "1" };
  Object.assign(secret, { type: "kubernetes.io/tls", metadata });
  let configuration: BundleHolder | undefined = cas && {
    metadata: { name: "ksvm", uid: "1", resourceVersion: "1" },
    webhooks: [{ name: WEBHOOK_NAME, clientConfig: { caBundle: btoa(cas.join("")) } }],
  };
  const request = async ({ method, path, body }: ApiRequest): Promise<unknown> => {
    requests.push({ method, at: clock.monotonic() });
    if (configuration !== undefined && path.includes("/validatingwebhookconfigurations/")) {
      configuration = { ...configuration, ...(body as object) };
      return { status: 200, body: configuration, serverTime: clock.now() };
    }
    if (!path.includes("/secrets/")) {
      const answer = { kind: "Status", reason: "NotFound", details: { name: "ksvm" } } as const;
      throw new ApiError(`${method} ${path}`, 404, { answer });
    }
    if (path.endsWith("/earlier")) {
      const earlier = { ...secret, metadata: { ...metadata, name: "earlier" }, data: dataOf(CURRENT) };
      return { status: 200, body: earlier, serverTime: clock.now() };
    }
    if (method === "PUT" && isKept) secret = body as typeof secret;
    return { status: 200, body: secret, serverTime: clock.now() };
  };
  const options: EnsureOptions = {
    settings: SETTINGS,
    client: new ApiClient({ server: "https://a", request } as unknown as Transport),
    findApiServers: async () => ({ mode: "each", clients: [] }),
    clock,
    retrier: new Retrier({ clock, random: () => 0 }),
    logger: pino({ level: "silent" }),
    signal: new AbortController().signal,
  };
  const published = (): readonly string[] =>
    atob(publishedBundleOf(configuration) ?? "").match(/-----BEGIN[^]*?-----END CERTIFICATE-----\n/g) ?? [];
  const stored = (key: string): string => atob(secret.data[key] ?? "");
  const stamp = (annotation: string, time: string): void => {
    secret = { ...secret, metadata: { ...metadata, annotations: { [annotation]: time } } } as typeof secret;
  };
  return { clock, options, published, requests, stamp, stored };
}

await tap.test("ensureCertificates() waits longer and longer where each step is undone, and ends", async (t) => {
  const { clock, options, requests } = setting(ROTATING);
  await t.rejects(ensureCertificates(options), { code: "RotationStuck", message: /^[^\n]*"ns\/tls"[^\n]*undoes/ });
  const writes = requests.filter(({ method }) => method === "PUT").map(({ at }) => at);
  const gaps = writes.map((at, index) => at - (writes[index - 1] ?? 0));
  t.equal(writes.length, 40);
  t.ok(
    gaps.slice(1).every((gap, index) => gap >= Math.min(5_000, 25 * 2 ** index)),
    gaps.join(" "),
  );
  t.ok(clock.monotonic() > 120_000, `${clock.monotonic()} ms`);
});

await tap.test("keepCertificates() looks every five seconds at most, whenever the next look is due", async (t) => {
  const { clock, options, requests } = setting(CURRENT);
  const abort = new AbortController();
  const kept = keepCertificates({ ...options, signal: abort.signal, intervalMs: 0 });
  // A clock that stands still would be a loop that does not wait at all.
  for (let turns = 0; turns < 20_000 && clock.monotonic() < 1_000_000; turns++) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  abort.abort(new Error("seen enough"));
  await kept;
  const looks = requests.length / 2;
  t.ok(looks > 1 && looks <= 201, `${looks} looks in 1000 s`);
});

await tap.test("keepCertificates() looks at once where the Secret has lost its certificates", async (t) => {
  const { options, requests } = setting(CURRENT);
  const [clock, abort, lost] = [new ManualClock(), new AbortController(), new Waker()];
  const kept = keepCertificates({ ...options, clock, signal: abort.signal, lost });
  await clock.advance(3_000_000);
  const looked = requests.length;
  await clock.advance(300_000);
  t.equal(requests.length, looked, "negative control: nothing is due for an hour");
  lost.wake();
  lost.wake();
  await clock.advance(60_000);
  t.equal(requests.length, 2 * looked, "it looked once");
  abort.abort(new Error("seen enough"));
  await kept;
});

/** As where one that lives cannot be reached. */
function findNone(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

await tap.test("a run looks once for an API server that it cannot find, and the next run looks again", async (t) => {
  // A time limit of Node.js keeps no process alive.
  const alive = setInterval(() => undefined, 1_000);
  t.teardown(() => clearInterval(alive));
  const { options } = setting(ROTATING, [next.certPem]);
  const settings = { ...SETTINGS, timeoutMs: 500 };
  await t.rejects(ensureCertificates({ ...options, settings, findApiServers: findNone }), {
    code: "NotConverged",
    message: "Cannot find every API server within 0.5 s",
  });
});

await tap.test("no CA leaves the caBundle before certificates that are broken have been repaired", async (t) => {
  const { clock, options, published, requests } = setting(CURRENT, [next.certPem]);
  clock.advance(100 * DAY_MS);
  const steps: string[] = [];
  // The serving certificate of the Secret has expired, as in an old copy of it. What is served is of the next CA.
  const kept = ensureCertificates({ ...options, onStep: (text) => steps.push(text) });
  await t.rejects(kept, { code: "RotationStuck" }, "the other client puts the old copy back after each write");
  t.match(steps, ["wrote the caBundle", "renewed the serving certificate: the serving certificate expired"]);
  t.same(published(), [next.certPem, old.certPem]);
  t.equal(requests.filter(({ method }) => method === "PATCH").length, 1, "it is written once");
});

const losses: readonly [what: string, texts: Readonly<Record<string, string>>, step: string][] = [
  ["lost its pair", { ...CURRENT, "tls.crt": "", "tls.key": "" }, "renewed the serving certificate"],
  ["lost its pair and the key of its CA", { "ca.crt": old.certPem }, "created a CA"],
  ["lost all", {}, "created a CA"],
  [
    "lost its pair during a rotation that every API server has seen",
    { ...ROTATING, "ca.key": "", "tls.crt": "", "tls.key": "" },
    "issued the serving certificate from the new CA",
  ],
  [
    "is that of another installation",
    FOREIGN,
    "created a CA and a serving certificate: the serving certificate is that of another installation",
  ],
];

for (const [what, texts, step] of losses) {
  await tap.test(
    `where the Secret ${what}, the CA of what replicas serve is trusted until all have followed`,
    async (t) => {
      const { clock, options, published, stored } = setting(texts, [served.certPem], true);
      const steps: string[] = [];
      const replicas = { certificate: servedPair.certPem };
      const settings = { ...SETTINGS, replicaDwellMs: 90_000, replicaEndpoints: [{ host: "a", port: 1 }] };
      const servedBy = async (): Promise<X509Certificate> => new X509Certificate(replicas.certificate);
      const ensure = () => ensureCertificates({ ...options, settings, servedBy, onStep: (text) => steps.push(text) });
      t.match(await ensure(), { state: "waiting", reason: /^the replicas have until then/ });
      t.ok(
        steps.some((text) => text.startsWith(step)),
        steps.join(", "),
      );
      t.ok(published().includes(served.certPem), "also after the repair");
      // The moment that a wait begins at is noted in whole seconds.
      clock.advance(91_000);
      t.match(await ensure(), { state: "waiting", reason: /^a:1 serve a certificate of the old CA$/ });
      t.ok(published().includes(served.certPem), "for as long as a replica is known to need it");
      replicas.certificate = stored("tls.crt");
      t.match(await ensure(), { state: "current" });
      t.notOk(published().includes(served.certPem));
      t.equal(published().length, 1);
    },
  );
}

await tap.test(
  "what is taken over from an earlier version is trusted beside the CA of what replicas serve",
  async (t) => {
    const { options, published } = setting({}, [served.certPem], true);
    const settings = { ...SETTINGS, takeOverFrom: "earlier", replicaDwellMs: 90_000 };
    t.match(await ensureCertificates({ ...options, settings }), { state: "waiting" });
    t.same(published().toSorted(), [old.certPem, served.certPem].toSorted());
  },
);

await tap.test("ensureCertificates() ends where what it takes over does not stay", async (t) => {
  const { clock, options, requests } = setting({});
  const settings = { ...SETTINGS, takeOverFrom: "earlier" };
  await t.rejects(ensureCertificates({ ...options, settings }), { code: "RotationStuck" });
  t.equal(requests.filter(({ method }) => method === "PUT").length, 40);
  t.ok(clock.monotonic() > 120_000, `${clock.monotonic()} ms`);
});

await tap.test(
  "a CA that another client publishes is not kept where the certificate lacks a further name alone",
  async (t) => {
    const { options, published, stored } = setting(CURRENT, [old.certPem, served.certPem], true);
    const steps: string[] = [];
    const settings = { ...SETTINGS, extraNames: ["b.example.com"] };
    const onStep = (text: string): void => void steps.push(text);
    t.match(await ensureCertificates({ ...options, settings, onStep }), { state: "current" });
    t.ok(steps.includes("renewed the serving certificate: the serving certificate lacks a name"), steps.join(", "));
    t.same(published(), [old.certPem]);
    t.equal(stored("ca.crt"), old.certPem);
  },
);

await tap.test(
  "a CA that is published is kept where the certificate lacks the host by which API servers call",
  async (t) => {
    const { options, published, stored } = setting(CURRENT, [served.certPem], true);
    const host = { calledBy: "b.example.com", extraNames: ["b.example.com"] };
    const settings = { ...SETTINGS, ...host, replicaDwellMs: 90_000 };
    t.match(await ensureCertificates({ ...options, settings }), { state: "waiting", reason: /^the replicas/ });
    t.same(published().toSorted(), [old.certPem, served.certPem].toSorted(), "replicas turn that certificate down");
    t.ok(stored("ca.crt").includes(served.certPem));
  },
);

await tap.test(
  "replicas have their dwell time once the CA that signs has signed in the place of another one",
  async (t) => {
    const byNext = await issueServing({ ca: next, now, lifetimeMs: 90 * DAY_MS, ...names });
    const bundle = { ...CURRENT, "ca.crt": old.certPem + next.certPem };
    const { clock, options, published, stamp } = setting(
      { ...bundle, "tls.crt": byNext.certPem, "tls.key": byNext.keyPem },
      [old.certPem, next.certPem],
      true,
    );
    stamp(SWITCHED_ANNOTATION, new Date(clockStart - DAY_MS).toISOString());
    const settings = { ...SETTINGS, replicaDwellMs: 90_000, replicaEndpoints: [] };
    t.match(await ensureCertificates({ ...options, settings }), { state: "waiting", reason: /^the replicas/ });
    t.equal(published().length, 2, "some may serve what the other one signed");
    clock.advance(91_000);
    t.match(await ensureCertificates({ ...options, settings }), { state: "current" });
    t.same(published(), [old.certPem]);
  },
);

await tap.test("a CA that the Secret does not have leaves the caBundle where nothing is broken", async (t) => {
  const { options, published } = setting(CURRENT, [next.certPem, old.certPem]);
  t.match(await ensureCertificates(options), { state: "current" });
  t.same(published(), [old.certPem]);
});

await tap.test("the dwell times pass whatever the clocks of the API servers that answer say", async (t) => {
  const clock = new FakeClock(clockStart);
  let secret: object = {
    type: "kubernetes.io/tls",
    metadata: {
      namespace: "ns",
      name: "tls",
      labels: { "app.kubernetes.io/managed-by": "ksvm" },
      resourceVersion: "1",
    },
    data: Object.fromEntries(Object.entries(CURRENT).map(([key, text]) => [key, btoa(text)])),
  };
  let answers = 0;
  const steps: { readonly text: string; readonly at: number }[] = [];
  const request = async ({ method, path, body }: ApiRequest): Promise<unknown> => {
    if (!path.includes("/secrets/")) {
      const answer = { kind: "Status", reason: "NotFound", details: { name: "ksvm" } } as const;
      throw new ApiError(`${method} ${path}`, 404, { answer });
    }
    if (method === "PUT") secret = body as object;
    // A load balancer sends each request to another API server, whose clocks are further apart than the dwell times are long, and
    // no further from this one than what certificates may be replaced with.
    const wrong = answers++ % 2 === 0 ? 200_000 : -200_000;
    return { status: 200, body: secret, serverTime: clock.now() + wrong };
  };
  await ensureCertificates({
    ...setting({}).options,
    settings: { ...SETTINGS, apiServerDwellMs: 30_000, replicaDwellMs: 90_000, replicaEndpoints: [] },
    client: new ApiClient({ server: "https://a", request } as unknown as Transport),
    clock,
    retrier: new Retrier({ clock, random: () => 0 }),
    rotateNow: true,
    wait: true,
    onStep: (text) => steps.push({ text, at: clock.monotonic() }),
  });
  const at = (text: RegExp): number => steps.find((step) => text.test(step.text))?.at ?? Number.NaN;
  const [seen, switched, dropped] = [/^every API server/, /^issued/, /^dropped/].map(at) as [number, number, number];
  t.ok(switched - seen >= 30_000 && switched - seen < 60_000, `${switched - seen} ms for the API servers`);
  t.ok(dropped - switched >= 90_000 && dropped - switched < 120_000, `${dropped - switched} ms for the replicas`);
});
