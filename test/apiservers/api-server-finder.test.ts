import { createServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import tap, { type Test } from "tap";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Transport } from "../../src/kube/transport.ts";
import { ApiServerFinder } from "../../src/apiservers/api-server-finder.ts";
import { fingerprintOf, serversOf } from "../../src/apiservers/api-servers.ts";
import { ServerRestarts } from "../../src/apiservers/server-restarts.ts";
import { SeenServers } from "../../src/apiservers/seen-servers.ts";
import { messageOf } from "../../src/errors.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { FakeClock } from "../fake-clock.ts";
import { configFor, kubeconfigFor } from "../kube/local-server.ts";

const pair = await issueSelfSigned({
  dnsNames: ["kubernetes.default.svc", "localhost"],
  ipAddresses: ["127.0.0.1"],
  now: new Date(),
  lifetimeMs: 3_600_000,
});

interface Seen {
  readonly addresses: string[];
  readonly leases: string[];
  /** What the API servers behind the one address show for when they started. @default one */
  instances?: (string | number)[];
  readonly areLeasesHidden?: boolean;
  /** The names by which no request is answered. */
  readonly broken?: string[];
  /** How often the list of Leases is refused, and in which words, before it is answered. */
  refusals?: string[];
  /** When Leases were renewed, where that matters. @default as time passes */
  renewTimes?: Readonly<Record<string, string>>;
  /** The uid of each Lease, where it has one. */
  uids?: Readonly<Record<string, string>>;
  /** What an earlier finder of the same process had. @default it is the first one */
  readonly earlier?: { readonly clock: SleepClock; readonly servers: SeenServers };
  /** For how long one that left takes requests. @default 0 */
  readonly shutdownDelayMs?: number;
  /** The `Date` of every answer. @default that of this machine */
  date?: string;
  /** The addresses that a user names; that of the stand-in is {@link ITSELF}. @default none */
  readonly endpoints?: readonly string[];
  /** How long one that cannot be found is waited for. @default 5 seconds */
  readonly timeoutMs?: number;
  /** Called before an API server answers whether it is there. */
  onVersion?: () => void;
  /** Of the kubeconfig's address. @default none */
  readonly path?: string;
  /** Host names at which a proxy answers in the place of an API server. */
  readonly proxies?: readonly string[];
}

/** As the authorizer says it. */
const forbidden = (what: string): string =>
  JSON.stringify({ kind: "Status", reason: "Forbidden", message: `forbidden: User "jane" ${what}` });
const LEASES_FORBIDDEN = forbidden('cannot list resource "leases" in API group "coordination.k8s.io"');

/** Tells of each sleep. */
class SleepClock extends FakeClock {
  onSleep: () => void = () => undefined;
  /** How long the machine was suspended, in milliseconds. */
  suspendedMs = 0;

  override now(): number {
    return super.now() + this.suspendedMs;
  }

  override async sleep(ms: number, within?: AbortSignal): Promise<void> {
    this.onSleep();
    await super.sleep(ms, within);
  }
}

const ITSELF = "itself";
const NEVER_OVER = Date.parse("2999-01-01T00:00:00Z");

/**
 * Stand-ins for several API servers, because the EndpointSlice of a real one on this machine cannot hold loopback
 * addresses: one server, reached by two names.
 */
async function startApiServers(t: Test, seen: Seen, renewedAt: (name: string) => number = () => 0): Promise<string> {
  let turn = 0;
  const starts = new WeakMap<Socket, string | number>();
  const server = createServer({ cert: pair.certPem, key: pair.keyPem }, (request, response) => {
    if (seen.date !== undefined) {
      response.setHeader("date", seen.date);
    }
    if (seen.broken?.some((name) => request.headers.host?.startsWith(name))) {
      request.socket.destroy();
      return;
    }
    if (request.url === "/version") {
      seen.onVersion?.();
      if (seen.proxies?.some((name) => request.headers.host?.startsWith(name))) {
        response.setHeader("content-type", "application/json").end(JSON.stringify({ status: "up" }));
        return;
      }
    }
    if (request.url === "/metrics") {
      // Behind one address: each connection stays with one of them.
      const { instances = [1] } = seen;
      const start = starts.get(request.socket) ?? instances[turn++ % instances.length] ?? 0;
      starts.set(request.socket, start);
      const shown = start === "mixed" ? ++turn : start;
      const isForbidden = start === "forbidden";
      const said = isForbidden ? forbidden('cannot get path "/metrics"') : `process_start_time_seconds ${shown}\n`;
      response.writeHead(isForbidden ? 403 : 200).end(said);
      return;
    }
    if (request.url?.includes("/leases") === true) {
      const refusal = seen.areLeasesHidden === true ? LEASES_FORBIDDEN : seen.refusals?.shift();
      if (refusal !== undefined) {
        response.writeHead(403).end(refusal);
        return;
      }
    }
    const { port } = server.address() as AddressInfo;
    const endpoints = [{ addresses: seen.addresses }];
    const specOf = (name: string) => ({
      renewTime: seen.renewTimes?.[name] ?? new Date(NEVER_OVER + renewedAt(name)).toISOString(),
      leaseDurationSeconds: 3_600,
    });
    const items = request.url?.includes("endpointslices")
      ? [{ endpoints, ports: [{ name: "https", port }] }]
      : seen.leases.map((name) => ({
          metadata: { name, uid: seen.uids?.[name], creationTimestamp: "2026-01-01T00:00:00Z" },
          spec: specOf(name),
        }));
    response.setHeader("content-type", "application/json").end(JSON.stringify({ gitVersion: "v1.36.3", items }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  return `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function finderFor(t: Test, seen: Seen, strict = false, ignored: readonly string[] = []) {
  const clock = seen.earlier?.clock ?? new SleepClock();
  const url = await startApiServers(t, seen, (name) => (ignored.includes(name) ? 0 : clock.monotonic()));
  const config = configFor(kubeconfigFor(`${url}${seen.path ?? ""}`, { token: "secret" }));
  const lags: string[] = [];
  const retried: string[] = [];
  const servers = seen.earlier?.servers ?? new SeenServers(clock);
  const finder = new ApiServerFinder({
    client: new ApiClient(new Transport(config)),
    clock,
    seen: servers,
    retrier: new Retrier({
      clock: new FakeClock(),
      random: () => 0.5,
      maxIdleMs: 100,
      onRetry: (error) => retried.push(messageOf(error)),
    }),
    strict,
    ignored,
    endpoints: seen.endpoints?.map((one) => (one === ITSELF ? url : one)),
    ...(seen.shutdownDelayMs === undefined ? {} : { shutdownDelayMs: seen.shutdownDelayMs }),
    timeoutMs: seen.timeoutMs ?? 5_000,
    onLag: (_, reason) => lags.push(reason),
  });
  t.teardown(() => finder.close());
  return { clock, finder, lags, leases: seen.leases, port: new URL(url).port, retried, servers };
}
const { signal } = new AbortController();

await tap.test("ApiServerFinder finds every API server by the EndpointSlice", async (t) => {
  const { finder, port } = await finderFor(t, { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b"] });
  const found = await finder.find(signal);
  t.same(serversOf(found), [`https://127.0.0.1:${port}`, `https://localhost:${port}`]);
  t.equal(found.newestJoin, Date.parse("2026-01-01T00:00:00Z"));
});

await tap.test("Identity Leases: one without a live endpoint is waited for and named", async (t) => {
  const seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"] };
  const { finder, lags } = await finderFor(t, seen);
  await t.rejects(finder.find(signal), { code: "NotConverged", message: /crashed.*--apiserver-endpoints/ });
  t.match(lags[0], /3 identity Leases live \(a, b, crashed\).*; 2 addresses are known/);

  const later = await finderFor(t, seen);
  const finding = later.finder.find(signal);
  seen.leases.pop();
  t.equal((await finding).mode, "each", "it goes on when the Lease has expired");
});

await tap.test("An API server that is missing for long is looked for less often", async (t) => {
  const seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"], timeoutMs: 600_000 };
  const { clock, finder, lags } = await finderFor(t, seen);
  const at: number[] = [];
  clock.onSleep = () => at.push(clock.monotonic());
  await t.rejects(finder.find(signal), { code: "NotConverged" });
  t.same(at.slice(0, 4), [0, 1_000, 2_000, 3_000]);
  t.ok(lags.length < 150, `${lags.length} looks in ten minutes`);
});

await tap.test(
  "an address that cannot be reached from here is no silence, and one that answered before is",
  async (t) => {
    const seen = { addresses: ["127.0.0.1", "127.0.0.9"], leases: ["a", "b"], instances: [1, 2] };
    const { finder, retried, servers } = await finderFor(t, seen);
    await finder.findAll(0, signal);
    t.same(retried, [], "nobody is told that ksvm tries again");
    t.notOk(servers.wereSilentWithin(60_000));

    seen.addresses[1] = "localhost";
    t.equal((await finder.findAll(0, signal)).mode, "each");
    t.notOk(servers.wereSilentWithin(60_000));
    // As one that stands still: the name is another server's from now on.
    await finder.close();
    t.equal((await finder.findAll(0, signal)).mode, "sampled");
    t.ok(servers.wereSilentWithin(60_000));
  },
);

await tap.test("a glance at the identity Leases is enough to see an API server leave", async (t) => {
  const seen: Seen = { addresses: ["127.0.0.1"], leases: ["a", "b"] };
  const { finder, leases } = await finderFor(t, seen);
  await finder.glance(signal);
  leases.pop();
  t.equal((await finder.findAll(60_000, signal)).silent, true);
  const late = await finderFor(t, seen);
  t.equal((await late.finder.findAll(60_000, signal)).silent, false, "negative control: nobody looked before it left");
});

await tap.test("ApiServerFinder samples where an address does not answer, unless it may not", async (t) => {
  const seen: Seen = { addresses: ["127.0.0.1", "127.0.0.9"], leases: ["a", "b"], instances: [1] };
  const { finder } = await finderFor(t, seen);
  t.equal((await finder.find(signal)).mode, "sampled");
  // Twenty samples of the one that answers prove nothing about the other one.
  await t.rejects(finder.findAll(0, signal), { code: "ApiServerMissing", message: /\(a, b\); 1 of them answer/ });
  const both = await finderFor(t, { ...seen, instances: [1, 2] });
  t.equal((await both.finder.findAll(0, signal)).clients?.length, 2, "negative control: each of two was told apart");
  const strict = await finderFor(t, seen, true);
  await t.rejects(strict.finder.find(signal), { code: "NotConverged", message: /--convergence=strict/ });
});

await tap.test(
  "ApiServerFinder tells no API servers apart behind the path of an HTTP proxy, as Rancher's",
  async (t) => {
    const seen = { addresses: ["127.0.0.1"], leases: ["a", "b"], instances: [1, 2], path: "/k8s/clusters/c-1" };
    const { finder } = await finderFor(t, seen);
    const message =
      /Leases live \(a, b\); they cannot be told apart behind https:\S+\/k8s\/clusters\/c-1, .* --ignore-apiserver/;
    await t.rejects(finder.findAll(0, signal), { name: "MissingApiServer", message });
    const sole = await finderFor(t, { ...seen, leases: ["a"] });
    t.equal(
      (await sole.finder.findAll(0, signal)).mode,
      "each",
      "negative control: a single API server has nobody beside it",
    );
  },
);

await tap.test("ApiServerFinder asks no API server which there are where they are named", async (t) => {
  const config = configFor(kubeconfigFor("https://127.0.0.1:1", { token: "secret" }));
  const finder = new ApiServerFinder({
    client: new ApiClient(new Transport(config)),
    clock: new FakeClock(),
    seen: new SeenServers(new FakeClock()),
    retrier: new Retrier({ clock: new FakeClock(), random: () => 0.5, maxIdleMs: 100 }),
    endpoints: ["https://127.0.0.1:2", "https://127.0.0.1:3"],
    strict: true,
    timeoutMs: 5_000,
    onLag: () => undefined,
  });
  t.same(serversOf(await finder.find(signal)), ["https://127.0.0.1:2", "https://127.0.0.1:3"]);
});

await tap.test(
  "findAll() names the identity Lease of an API server that was not asked, and finds it once it answers",
  async (t) => {
    const seen: Seen = { addresses: [], leases: ["a", "hung"], instances: [1] };
    const { finder } = await finderFor(t, seen);
    const missing = { code: "ApiServerMissing", message: /\(a, hung\).*1 of them answer.*--ignore-apiserver/ };
    await t.rejects(finder.findAll(60_000, signal), missing);
    seen.instances = [1, 2];
    await t.rejects(finder.findAll(60_000, signal), missing, "no Lease was renewed since, so it is not looked for yet");
    const later = await finderFor(t, seen);
    const found = await later.finder.findAll(60_000, signal);
    t.match(found, { mode: "sampled", identities: ["a", "hung"] });
    t.equal(found.clients?.length, 2, "a client for each");
  },
);

await tap.test("findAll() goes on without an API server that is ignored", async (t) => {
  const { finder } = await finderFor(t, { addresses: [], leases: ["a", "gone"] }, false, ["gone"]);
  t.match(await finder.findAll(60_000, signal), { mode: "each", identities: ["a"] });
});

await tap.test("findAll() counts an API server that is ignored once it renews its identity Lease", async (t) => {
  const woken: Seen = { addresses: [], leases: ["a", "hung"] };
  const { finder, lags } = await finderFor(t, woken, false, ["hung"]);
  t.match(await finder.findAll(60_000, signal), { identities: ["a"] });
  woken.renewTimes = { a: "2999-01-01T00:00:10Z" };
  t.match(await finder.findAll(60_000, signal), { identities: ["a"] }, "another one is renewed");
  woken.renewTimes = { hung: "2999-01-01T00:00:20Z" };
  const missing = { code: "ApiServerMissing", message: /\(a, hung\)/ };
  await t.rejects(finder.findAll(60_000, signal), missing, "it woke up, with what was under way on it");
  const alive = "it was to be ignored, and has renewed its identity Lease since: its API server lives";
  t.match(lags, [/looking for 15 s/, alive]);
  await t.rejects(finder.findAll(60_000, signal), missing);
  t.equal(lags.length, 2, "said once");

  const back: Seen = { addresses: [], leases: ["a"] };
  const later = await finderFor(t, back, false, ["gone"]);
  t.match(await later.finder.findAll(60_000, signal), { identities: ["a"] });
  back.leases.push("gone");
  await t.rejects(later.finder.findAll(60_000, signal), { message: /\(a, gone\)/ }, "it came back");
});

await tap.test(
  "findAll() takes an API server that was to be ignored, and renews its Lease, for one that was silent",
  async (t) => {
    const addresses = ["127.0.0.1", "localhost"];
    for (const endpoints of [undefined, [ITSELF]]) {
      // By its clock, which is ahead, it is not overdue.
      const woken: Seen = { addresses, leases: ["a", "hung"], ...(endpoints === undefined ? {} : { endpoints }) };
      const first = await finderFor(t, woken, false, ["hung"]);
      t.match(await first.finder.findAll(60_000, signal), { silent: false });
      woken.renewTimes = { hung: "2999-01-01T00:00:20Z" };
      const stood = "a user took it for gone: it stood still, perhaps";
      t.match(await first.finder.findAll(60_000, signal), { silent: true }, stood);
      for (const seconds of [40, 60]) {
        first.clock.advance(25_000);
        woken.renewTimes = { hung: `2999-01-01T00:00:${seconds - 1}Z` };
        await first.finder.glance(signal);
      }
      first.clock.advance(12_000);
      const { clock, servers } = first;
      const again: Seen = { ...woken, earlier: { clock, servers } };
      const { finder, lags } = await finderFor(t, again, false, ["hung"]);
      await finder.findAll(60_000, signal);
      again.renewTimes = { hung: "2999-01-01T00:01:10Z" };
      t.match(await finder.findAll(60_000, signal), { silent: false }, "the process knows that it lives");
      t.match(lags.at(-1), /its API server lives/);
    }
  },
);

await tap.test("findAll() looks at first whether an API server that is to be ignored renews its Lease", async (t) => {
  const alive: Seen = { addresses: [], leases: ["a", "alive"] };
  const { clock, finder, lags } = await finderFor(t, alive, false, ["alive"]);
  // It renews its Lease once a while, so a look right after another one shows nothing.
  clock.onSleep = () => (alive.renewTimes = { alive: "2999-01-01T00:00:10Z" });
  await t.rejects(finder.findAll(60_000, signal), { code: "ApiServerMissing", message: /\(a, alive\)/ });
  t.match(lags, [/looking for 15 s/, /its API server lives/]);
  const glanced = await finderFor(t, { addresses: [], leases: ["a", "gone"] }, false, ["gone"]);
  await glanced.finder.glance(signal);
  glanced.clock.advance(4_000);
  await glanced.finder.findAll(60_000, signal);
  await glanced.finder.findAll(60_000, signal);
  t.same(glanced.clock.sleeps, [11_000], "a glance was the first look");
  const gone = await finderFor(t, { addresses: [], leases: ["a"] }, false, ["gone"]);
  t.match(await gone.finder.findAll(60_000, signal), { identities: ["a"], ignored: ["gone"] });
  t.equal(gone.clock.monotonic(), 0, "there is no Lease to look at");
});

await tap.test("findAll() counts a suspension as a silence also where the API servers are named", async (t) => {
  const seen: Seen = { addresses: [], leases: [], endpoints: [ITSELF] };
  const { clock, finder } = await finderFor(t, seen, true);
  t.match(await finder.findAll(60_000, signal), { silent: false });
  clock.suspendedMs = 3_600_000;
  t.match(await finder.findAll(60_000, signal), { silent: true });
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false }, "long enough ago");
});

await tap.test("findAll() looks at identity Leases also where the API servers are named", async (t) => {
  const endpoints = [ITSELF];
  const date = "Thu, 01 Jan 2026 00:01:00 GMT";
  const [late, intime] = ["2026-01-01T00:00:20Z", "2026-01-01T00:00:50Z"];
  const standing: Seen = { addresses: [], leases: ["a", "b"], endpoints, date, renewTimes: { a: intime, b: intime } };
  const { clock, finder } = await finderFor(t, standing);
  t.match(await finder.findAll(60_000, signal), { silent: false });
  standing.renewTimes = { a: intime, b: late };
  t.match(await finder.findAll(60_000, signal), { silent: true }, "it may go on before it is asked");
  clock.advance(60_001);
  standing.renewTimes = { a: intime, b: intime };
  t.match(await finder.findAll(60_000, signal), { silent: true }, "it stood still until a moment ago");
  clock.advance(60_001);
  standing.renewTimes = { a: "2026-01-01T00:00:51Z", b: "2026-01-01T00:00:52Z" };
  t.match(await finder.findAll(60_000, signal), { silent: true }, "each look showed the same renewals in this time");
  clock.advance(60_001);
  standing.renewTimes = {};
  t.match(await finder.findAll(60_000, signal), { silent: false });

  const ending: Seen = { addresses: [], leases: ["a", "b"], endpoints, shutdownDelayMs: 20_000 };
  const left = await finderFor(t, ending);
  await left.finder.findAll(60_000, signal);
  ending.leases.pop();
  await t.rejects(left.finder.findAll(60_000, signal), { name: "MissingApiServer", message: /Lease b was found gone/ });
  left.clock.advance(20_001);
  t.match(await left.finder.findAll(60_000, signal), { silent: true });

  const hidden = await finderFor(t, { addresses: [], leases: ["a"], areLeasesHidden: true, endpoints });
  t.match(await hidden.finder.findAll(60_000, signal), { silent: false }, "who may not list them need not");
  const broken = await finderFor(t, { addresses: [], leases: ["a"], broken: ["127.0.0.1"], endpoints });
  t.match(await broken.finder.findAll(60_000, signal), { silent: true });
});

await tap.test("findAll() has a silence last until those that are named answer", async (t) => {
  const clock = new SleepClock();
  const servers = new SeenServers(clock);
  const named: Seen = {
    addresses: [],
    leases: ["a"],
    areLeasesHidden: true,
    endpoints: ["https://127.0.0.1:2"],
    earlier: { clock, servers },
  };
  const { finder } = await finderFor(t, named);
  servers.silent();
  t.match(await finder.findAll(60_000, signal), { silent: true });
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: true }, "it has not answered since");
  servers.found();
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false });
});

await tap.test("glance() asks those that are named where identity Leases tell nothing", async (t) => {
  const clock = new SleepClock();
  const servers = new SeenServers(clock);
  const common = { addresses: [], leases: [], earlier: { clock, servers } };
  for (const areLeasesHidden of [true, false]) {
    const answering = await finderFor(t, { ...common, areLeasesHidden, endpoints: [ITSELF] });
    await answering.finder.glance(signal);
    t.ok(servers.isSilenceOver);
    const standing = await finderFor(t, { ...common, areLeasesHidden, endpoints: [ITSELF, "https://127.0.0.1:2"] });
    await standing.finder.glance(signal);
    clock.advance(3_600_000);
    t.match(await answering.finder.findAll(60_000, signal), { silent: true }, "it may have gone on right before");
    clock.advance(60_001);
    t.match(await answering.finder.findAll(60_000, signal), { silent: false });
  }
});

await tap.test(
  "glance() that is shown no identity Lease, where no user names API servers, may hide one that stands still",
  async (t) => {
    for (const areLeasesHidden of [true, false]) {
      const { finder, servers } = await finderFor(t, { addresses: [], leases: [], areLeasesHidden });
      await finder.glance(signal);
      t.notOk(servers.isSilenceOver);
    }
    const { finder, servers } = await finderFor(t, { addresses: [], leases: ["a"] });
    await finder.glance(signal);
    t.ok(servers.isSilenceOver);
  },
);

await tap.test("glance() that ends with its run takes no API server for silent", async (t) => {
  const seen: Seen = { addresses: [], leases: [], areLeasesHidden: true, endpoints: [ITSELF] };
  const { finder, servers } = await finderFor(t, seen);
  await finder.glance(signal);
  const ended = new AbortController();
  seen.onVersion = () => ended.abort();
  await t.rejects(finder.glance(ended.signal), { name: "AbortError" });
  t.ok(servers.isSilenceOver, "nobody waited for its answer");
});

await tap.test("findAll() names the Lease that has no address, at once", async (t) => {
  const seen: Seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"] };
  const { finder } = await finderFor(t, seen);
  await t.rejects(finder.findAll(60_000, signal), { name: "MissingApiServer", message: /crashed.*2 addresses/ });
  seen.leases.pop();
  t.match(await finder.findAll(60_000, signal), { mode: "each", silent: true }, "its silence counts for a while");
});

await tap.test("findAll() refuses where identity Leases or metrics may not be read", async (t) => {
  const hidden = await finderFor(t, { addresses: [], leases: [], areLeasesHidden: true });
  await t.rejects(hidden.finder.findAll(0, signal), { code: "ApiServerMissing", message: /may not list the identity/ });
  const unmeasured = await finderFor(t, { addresses: [], leases: ["a", "b"], instances: ["forbidden"] });
  await t.rejects(unmeasured.finder.findAll(0, signal), { code: "ApiServerMissing", message: /"\/metrics"/ });
});

await tap.test("findAll() refuses where no identity Lease lives, once that has lasted", async (t) => {
  for (const addresses of [[], ["127.0.0.1"], ["127.0.0.1", "localhost"]]) {
    const { clock, finder } = await finderFor(t, { addresses, leases: [] });
    await t.rejects(finder.findAll(0, signal), {
      code: "ApiServerMissing",
      message: /no identity Lease in kube-system lives.*APIServerIdentity.*--apiserver-endpoints/,
    });
    t.ok(clock.monotonic() >= 15_000, "an API server that just started has none yet");
  }
  const starting: Seen = { addresses: [], leases: [] };
  const { clock, finder } = await finderFor(t, starting);
  clock.onSleep = () => (starting.leases[0] = "a");
  t.match(await finder.findAll(0, signal), { mode: "each", identities: ["a"] });
});

await tap.test(
  "findAll() has a run wait where the only API server has left, and no other one has come yet",
  async (t) => {
    const seen = { addresses: ["127.0.0.1"], leases: ["a"], shutdownDelayMs: 60_000 };
    const { finder } = await finderFor(t, seen);
    t.match(await finder.findAll(0, signal), { mode: "each" });
    seen.leases = [];
    await t.rejects(finder.findAll(0, signal), {
      name: "MissingApiServer",
      reason:
        "no identity Lease in kube-system lives: the API server of a was the last one, and was found gone 15 s ago",
    });
  },
);

await tap.test("findAll() wants as many API servers behind one address as there are addresses", async (t) => {
  // Two that cannot be reached from here, and the identity Lease of one of them is missing.
  const seen: Seen = { addresses: ["127.0.0.1", "127.0.0.9"], leases: ["a"], instances: [1] };
  const { finder } = await finderFor(t, seen);
  await t.rejects(finder.findAll(0, signal), {
    name: "MissingApiServer",
    message: /1 identity Leases live \(a\); 2 addresses are known \(.*127\.0\.0\.9.*\), and 1 of them answer behind/,
  });
  const both = await finderFor(t, { ...seen, instances: [1, 2] });
  t.equal((await both.finder.findAll(0, signal)).clients?.length, 2);
});

await tap.test("findAll() asks for /metrics again while an API server that just started forbids them", async (t) => {
  const seen: Seen = { addresses: [], leases: ["a", "b"], instances: [1, "forbidden"] };
  const { clock, finder } = await finderFor(t, seen);
  clock.onSleep = () => (seen.instances = [1, 2]);
  const found = await finder.findAll(0, signal);
  t.equal(found.clients?.length, 2);
  t.ok(clock.monotonic() < 15_000);
  const lasting = await finderFor(t, { ...seen, instances: [1, "forbidden"] });
  const missing = { code: "ApiServerMissing", message: /may not get the nonResourceURL "\/metrics"; grant that/ };
  await t.rejects(lasting.finder.findAll(0, signal), missing);
  t.ok(lasting.clock.monotonic() >= 15_000, "a refusal has to last");
});

await tap.test(
  "findAll() asks again after a proxy's 403, and after one of an API server that knows no roles yet",
  async (t) => {
    for (const refusal of ["<html>blocked</html>", LEASES_FORBIDDEN]) {
      // Two in a row: the first one meets the look at Leases to ignore.
      const { finder } = await finderFor(t, { addresses: [], leases: ["a"], refusals: [refusal, refusal] });
      t.match(await finder.findAll(0, signal), { mode: "each", identities: ["a"] }, refusal);
    }
  },
);

await tap.test("findAll() refuses where several API servers answer on one connection", async (t) => {
  const { finder } = await finderFor(t, { addresses: [], leases: ["a", "b"], instances: ["mixed"] });
  await t.rejects(finder.findAll(0, signal), { code: "ApiServerMissing", message: /HTTP load balancer/ });
});

await tap.test("findAll() counts it as a silence that machines were suspended", async (t) => {
  const { clock, finder } = await finderFor(t, { addresses: [], leases: ["a"] });
  t.match(await finder.findAll(60_000, signal), { silent: false });
  clock.suspendedMs = 3_600_000;
  t.match(await finder.findAll(60_000, signal), { silent: true }, "this one: its time of day jumped");
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false }, "long enough ago");

  const seen: Seen = { addresses: [], leases: ["a"], renewTimes: { a: new Date(Date.now() - 600_000).toISOString() } };
  const late = await finderFor(t, seen);
  t.match(await late.finder.findAll(60_000, signal), { silent: true }, "that of the API server: its Lease is overdue");
});

await tap.test("findAll() counts a silence that an earlier finder of the same process saw", async (t) => {
  const hung: Seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"] };
  const earlier = await finderFor(t, hung);
  await t.rejects(earlier.finder.findAll(60_000, signal), { code: "ApiServerMissing" });
  const overdue = { a: new Date(Date.now() - 600_000).toISOString() };
  const late = await finderFor(t, { addresses: [], leases: ["a"], renewTimes: overdue });
  t.match(await late.finder.findAll(60_000, signal), { silent: true });
  for (const before of [earlier, late]) {
    const { clock, finder } = await finderFor(t, { addresses: [], leases: ["a"], earlier: before });
    t.match(await finder.findAll(60_000, signal), { silent: true });
    clock.advance(60_001);
    t.match(await finder.findAll(60_000, signal), { silent: false }, "long enough ago");
  }
});

await tap.test("findAll() counts it as a silence that an API server left between two looks of a process", async (t) => {
  const seen: Seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b"] };
  const earlier = await finderFor(t, seen);
  t.match(await earlier.finder.findAll(60_000, signal), { mode: "each", silent: false });
  const { clock, finder } = await finderFor(t, { addresses: [], leases: ["a"], earlier });
  clock.advance(3_600_000);
  t.match(await finder.findAll(60_000, signal), { identities: ["a"], silent: true }, "nothing tells when");
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false }, "long enough ago");
});

await tap.test("findAll() asks none of the others until one that left takes no request any more", async (t) => {
  const shutdownDelayMs = 20_000;
  const both = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b"] };
  const earlier = await finderFor(t, both);
  await earlier.finder.findAll(60_000, signal);
  const { clock, finder } = await finderFor(t, { addresses: [], leases: ["a"], earlier, shutdownDelayMs });
  const missing = {
    name: "MissingApiServer",
    reason:
      /^the API server of identity Lease b was found gone 0 s ago, and it may take requests for 20 s after that \(--shut/,
    message: /--shutdown-delay\); wait$/,
  };
  await t.rejects(finder.findAll(60_000, signal), missing);
  clock.advance(20_000);
  await t.rejects(finder.findAll(60_000, signal), { message: /Lease b was found gone 20 s ago/ });
  clock.advance(1);
  t.match(await finder.findAll(60_000, signal), { identities: ["a"], silent: true });
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false });
});

await tap.test("findAll() waits for one that left while another replica led", async (t) => {
  const seen: Seen = { addresses: ["localhost"], leases: ["a"], broken: [], shutdownDelayMs: 20_000 };
  const { clock, finder, servers } = await finderFor(t, seen);
  await finder.findAll(60_000, signal);
  clock.advance(3_600_000);
  servers.tookOver();
  clock.advance(5_000);
  const missing = {
    name: "MissingApiServer",
    reason: /^an API server that left while another process looked, before this one took over, may take/,
  };
  await t.rejects(finder.findAll(60_000, signal), missing, "no look came since");
  clock.advance(20_000);
  await t.rejects(finder.findAll(60_000, signal), missing, "the first look does not tell when one left before it");
  seen.broken?.push("localhost");
  const urls = serversOf(await finder.find(signal)).map((url) => new URL(url).hostname);
  t.same(urls, ["localhost"], "it may still answer in the place of the only one");
  seen.broken?.pop();
  clock.advance(1);
  t.match(await finder.findAll(60_000, signal), { silent: true });
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false });

  const named = await finderFor(t, { ...seen, endpoints: [ITSELF], areLeasesHidden: true });
  named.servers.tookOver();
  await t.rejects(named.finder.findAll(60_000, signal), missing);
  named.clock.advance(20_001);
  t.match(await named.finder.findAll(60_000, signal), { silent: true }, "also where no look tells anything");
});

await tap.test(
  "the only API server is asked at its own address where another one may answer in its place",
  async (t) => {
    const sole = { addresses: ["localhost"], leases: ["a"] };
    const servers = async ({ finder }: Awaited<ReturnType<typeof finderFor>>): Promise<readonly string[]> =>
      serversOf(await finder.findAll(0, signal)).map((url) => new URL(url).hostname);
    const delayed: Seen = { ...sole, shutdownDelayMs: 20_000, broken: [] };
    const found = await finderFor(t, delayed);
    t.same(await servers(found), ["localhost"]);
    delayed.broken?.push("localhost");
    t.same(await servers(found), ["localhost"], "it has answered there: another one is none that lives");
    t.ok(found.servers.wereSilentWithin(60_000));
    const unreachable = await finderFor(t, { ...delayed, broken: ["localhost"] });
    t.same(await servers(unreachable), ["127.0.0.1"], "where it cannot be, the address of the kubeconfig is asked");
    t.notOk(unreachable.servers.wereSilentWithin(60_000));
    const besides = await finderFor(t, { ...delayed, broken: [], proxies: ["localhost"] });
    t.same(await servers(besides), ["127.0.0.1"], "the answer of a proxy is none of the API server");
    t.same(await servers(await finderFor(t, sole)), ["127.0.0.1"], "none takes requests once it has begun to end");
  },
);

await tap.test(
  "the only API server is the same one where it can no longer be reached at its own address",
  async (t) => {
    const seen: Seen = { addresses: ["localhost"], leases: ["a"], shutdownDelayMs: 20_000, broken: [] };
    const { clock, finder } = await finderFor(t, seen);
    const restarts = new ServerRestarts();
    const context = { clock, emit: () => undefined, signal };
    const before = await finder.findAll(0, signal);
    t.equal(await restarts.look(context, before), 0);
    clock.advance(20_001);
    seen.broken?.push("localhost");
    const after = await finder.findAll(0, signal);
    t.not(serversOf(after)[0], serversOf(before)[0]);
    t.equal(fingerprintOf(after), fingerprintOf(before));
    t.equal(await restarts.look(context, after), 0);
    seen.instances = [2];
    seen.broken?.pop();
    t.equal(await restarts.look(context, await finder.findAll(0, signal)), 1, "it has restarted since");
  },
);

await tap.test("findAll() counts what one that left has under way where no run looked in the meantime", async (t) => {
  const seen = { addresses: [], leases: ["a", "b"], instances: [1, 2], shutdownDelayMs: 90_000 };
  const { clock, finder } = await finderFor(t, seen);
  await finder.findAll(60_000, signal);
  seen.leases.pop();
  await finder.find(signal);
  clock.advance(90_001);
  t.match(await finder.findAll(60_000, signal), { silent: true }, "its last request may be 1 ms old");
  clock.advance(60_000);
  t.match(await finder.findAll(60_000, signal), { silent: false });
});

await tap.test("findAll() does not count one as leaving that was taken for gone, or is ignored", async (t) => {
  const expired: Seen = { addresses: [], leases: ["a", "dead"], renewTimes: { dead: "2025-12-31T20:00:00Z" } };
  const dead = await finderFor(t, expired);
  const ignored = await finderFor(t, { addresses: [], leases: ["a", "gone"] }, false, ["gone"]);
  for (const { finder, leases } of [dead, ignored]) {
    t.match(await finder.findAll(0, signal), { identities: ["a"] });
    leases.pop();
    t.match(await finder.findAll(60_000, signal), { identities: ["a"], silent: false });
  }
});

await tap.test("findAll() counts a silence until it finds all", async (t) => {
  const seen: Seen = { addresses: ["127.0.0.1", "localhost"], leases: ["a", "b", "crashed"] };
  const { clock, finder } = await finderFor(t, seen);
  await t.rejects(finder.findAll(60_000, signal), { code: "ApiServerMissing" });
  seen.leases.pop();
  clock.advance(3_600_000);
  t.match(await finder.findAll(60_000, signal), { silent: true }, "nobody looked in between");
  clock.advance(60_001);
  t.match(await finder.findAll(60_000, signal), { silent: false });
});

await tap.test("findAll() counts no API server as gone by a Date that is far ahead", async (t) => {
  // By the clock of this machine neither is over.
  const renewTimes = { a: "2026-01-01T00:00:00Z", b: "2026-01-01T00:00:00Z" };
  const lying: Seen = { addresses: [], leases: ["a", "b"], renewTimes, date: "Fri, 01 Jan 2027 00:00:00 GMT" };
  const { clock, finder } = await finderFor(t, lying);
  await t.rejects(finder.findAll(0, signal), { code: "ApiServerMissing", message: /\(a, b\).*1 of them answer/ });
  t.equal(clock.monotonic(), 0, "it need not be watched");
});

await tap.test(
  "findAll() counts no API server as gone that renews its Lease by a clock that is far behind",
  async (t) => {
    const seen: Seen = { addresses: [], leases: ["a", "behind"], renewTimes: { behind: "2025-12-31T20:00:00Z" } };
    const { clock, finder, lags } = await finderFor(t, seen);
    clock.onSleep = () => (seen.renewTimes = { ...seen.renewTimes, behind: "2025-12-31T20:00:30Z" });
    await t.rejects(finder.findAll(0, signal), {
      code: "ApiServerMissing",
      message: /\(a, behind\).*1 of them answer/,
    });
    t.match(lags, [/seems to have expired; looking for 30 s/]);
    await t.rejects(finder.findAll(0, signal), { code: "ApiServerMissing", message: /\(a, behind\)/ });
    const waits = clock.sleeps.filter((ms) => ms > 1_000);
    t.same(waits, [30_000], "once it was renewed it lives, without another look");
  },
);

await tap.test("findAll() watches a Lease whose time is over, once in a process, and goes on without it", async (t) => {
  const seen: Seen = { addresses: [], leases: ["a", "dead"], renewTimes: { dead: "2025-12-31T20:00:00Z" } };
  const { clock, finder, lags } = await finderFor(t, seen);
  t.match(await finder.findAll(0, signal), { mode: "each", identities: ["a"] });
  t.match(lags, [/looking for 30 s whether it is renewed/]);
  t.match(await finder.findAll(0, signal), { mode: "each", identities: ["a"] });
  t.same(clock.sleeps, [30_000]);
});

await tap.test("findAll() does not watch without end a Lease that is created again and again", async (t) => {
  const seen: Seen = { addresses: [], leases: ["a", "loops"], renewTimes: { loops: "2025-12-31T20:00:00Z" } };
  const { clock, finder, lags } = await finderFor(t, seen);
  clock.onSleep = () => (seen.uids = { loops: String(clock.sleeps.length) });
  const missing = { name: "MissingApiServer", message: /Lease loops seems to have expired, and was created again/ };
  await t.rejects(finder.findAll(0, signal), missing);
  t.same(clock.sleeps, [30_000], "so a freeze is held no longer");
  t.equal(lags.length, 1);
  clock.onSleep = () => undefined;
  clock.advance(30_000);
  t.match(await finder.findAll(0, signal), { identities: ["a"] }, "what was seen counts for the next call");
});

await tap.test("findAll() ends a watch of Leases that always begins again with another one", async (t) => {
  const over = "2025-12-31T20:00:00Z";
  const seen: Seen = { addresses: [], leases: ["a", "x0"], renewTimes: { x0: over } };
  const { clock, finder } = await finderFor(t, seen);
  clock.onSleep = () => {
    const name = `x${clock.sleeps.length + 1}`;
    seen.leases.splice(1, 1, name);
    seen.renewTimes = { [name]: over };
  };
  await t.rejects(finder.findAll(0, signal), {
    name: "MissingApiServer",
    message: /cannot be told yet whether x2 live/,
  });
  t.equal(clock.monotonic(), 45_000);
});

await tap.test(
  "findAll() ignores an API server also where its Lease lives by the next clock that answers",
  async (t) => {
    // By the clock of this machine it is over; an earlier run saw it stand still.
    const renewTimes = { gone: "2025-12-31T20:00:00Z" };
    const seen: Seen = { addresses: [], leases: ["a", "gone"], renewTimes };
    const earlier = await finderFor(t, seen);
    await earlier.finder.findAll(0, signal);
    const later: Seen = { ...seen, earlier };
    const { clock, finder, lags } = await finderFor(t, later, false, ["gone"]);
    t.match(await finder.findAll(0, signal), { identities: ["a"], ignored: ["gone"] });
    t.same(clock.sleeps, [30_000], "one that has expired need not be watched");
    later.date = "Wed, 31 Dec 2025 20:30:00 GMT";
    t.match(await finder.findAll(0, signal), { identities: ["a"], ignored: ["gone"] });
    t.same(lags, []);
    later.renewTimes = { gone: "2025-12-31T20:00:10Z" };
    await t.rejects(finder.findAll(0, signal), { message: /\(a, gone\)/ }, "negative control: it is renewed");
  },
);
