import { Readable } from "node:stream";
import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import type { ApiServers } from "../../src/apiservers/api-servers.ts";
import { serverIdHashOf } from "../../src/apiservers/encryption-agreement.ts";
import { type EncryptionContext, EncryptionEvidence, NONE_SHOWN } from "../../src/apiservers/encryption-evidence.ts";
import { RecentFailure } from "../../src/apiservers/recent-failure.ts";
import type { WarningEvent } from "../../src/retry/events.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import type { ApiServerEvent } from "../../src/apiservers/events.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { FakeClock } from "../fake-clock.ts";

const [OLD, NEW] = [serverIdHashOf("old"), serverIdHashOf("new")];

function metricsOf(identity: string, config: string): string {
  const labels = `apiserver_id_hash="${serverIdHashOf(identity)}",hash="${config}"`;
  return `process_start_time_seconds 1\napiserver_encryption_config_controller_last_config_info{${labels}} 1\n`;
}

/** What an API server answers whose KMS plugins work. */
const HEALTHY: (server: string) => string = () => "[+]ping ok\n[+]kms-providers ok\nhealthz check passed\n";

const KMS = `apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash="${NEW}",provider_name="vault"} 5\n`;

function forbidden(): never {
  throw new ApiError("GET /metrics", 403, {});
}

/** Two API servers whose /metrics are what `b` says at a time; a real one cannot be made to fail at a given moment. */
function setting(
  b: (ms: number) => string,
  {
    mode = "each",
    a = () => metricsOf("lease-a", NEW),
    leases = ["lease-a", "lease-b"],
    areToldApart = false,
    health = HEALTHY,
  } = {},
) {
  const clock = new FakeClock();
  const events: (ApiServerEvent | WarningEvent)[] = [];
  let turn = 0;
  const clientOf = (server: string, text: (ms: number) => string): ApiClient => {
    const stream = async ({ path }: ApiRequest): Promise<Readable> =>
      Readable.from([Buffer.from(path === "/healthz" ? health(server) : text(clock.monotonic()))]);
    return { transport: { server, stream, close: async () => undefined } } as unknown as ApiClient;
  };
  const clients = [clientOf("https://a", a), clientOf("https://b", b)] as const;
  const open = (): ApiClient => clients[turn++ % 2 === 0 ? 0 : 1];
  const spec = { renewTime: "2026-01-01T00:00:00Z" };
  const listed = { kind: "LeaseList", items: leases.map((name) => ({ metadata: { name }, spec })) };
  const client = { transport: { request: async () => ({ status: 200, body: listed }) } } as unknown as ApiClient;
  const identities = mode === "named" ? {} : { identities: leases };
  const apiServers: ApiServers =
    mode === "sampled"
      ? { mode, server: "https://lb", open, ...identities, ...(areToldApart ? { clients } : {}) }
      : { mode: "each", clients, ...identities };
  const context: EncryptionContext = {
    client,
    arrivals: UNSEEN_ARRIVALS,
    retrier: new Retrier({ clock, random: () => 0.5 }),
    clock,
    emit: (event) => void events.push(event),
    findApiServers: async () => apiServers,
    options: { convergenceTimeoutMs: 20_000 },
    signal: new AbortController().signal,
  };
  return { clock, context, events };
}

const withKms = (identity: string) => () => metricsOf(identity, NEW) + KMS;

/** What an API server answers whose KMS plugin names a key that it does not let it encrypt with. */
function failing(): never {
  const text = "[+]ping ok\n[-]kms-provider-0 failed: reason withheld\n[+]poststarthook/start-informers ok\n";
  throw new ApiError("GET /healthz", 500, { text });
}

for (const [what, health, message] of [
  [
    "may not encrypt with the key that it names",
    failing,
    /https:\/\/b.* KMS plugins .*: kms-provider-0 failed, see the log/,
  ],
  ["is not shown", () => "[+]ping ok\n", /https:\/\/b.* its \/healthz does not show its KMS plugins/],
  ["cannot be asked about", forbidden, /https:\/\/b.* KMS plugins .*: .*403/],
] as const) {
  await tap.test(`EncryptionEvidence believes no key of a KMS plugin that ${what}`, async (t) => {
    const a = withKms("lease-a");
    const passes = setting(withKms("lease-b"), { a });
    await new EncryptionEvidence({ isAssumed: false }).look(passes.context, "secrets");
    const { context } = setting(withKms("lease-b"), {
      a,
      health: (server) => (server === "https://b" ? health() : HEALTHY(server)),
    });
    const look = new EncryptionEvidence({ isAssumed: false }).look(context, "secrets");
    await t.rejects(look, { code: "EncryptionUnknown", message });
  });
}

await tap.test("EncryptionEvidence asks no API server without a KMS plugin for its health", async (t) => {
  const { context } = setting(() => metricsOf("lease-b", NEW), { health: failing });
  t.equal((await new EncryptionEvidence({ isAssumed: false }).look(context, "secrets")).configHash, NEW);
});

const none = (): string => "process_start_time_seconds 1\n";

const lookAtNone = async (isOptional: boolean): Promise<unknown> => {
  const { context } = setting(none, { a: none });
  const evidence = new EncryptionEvidence({ isAssumed: false, expectedConfig: NEW, isOptional });
  return evidence.look(context, "secrets").catch((error: unknown) => error);
};

await tap.test("EncryptionEvidence names --assume-config-rolled-out only where a command has it", async (t) => {
  t.match(await lookAtNone(false), { code: "EncryptionUnknown", message: /or pass --assume-config-rolled-out/ });
  t.match(await lookAtNone(true), { code: "EncryptionUnknown", message: /see docs\/reencryption\.md$/ });
});

await tap.test("EncryptionEvidence believes no earlier look where an API server joined and left since", async (t) => {
  const { clock, context } = setting(() => metricsOf("lease-b", NEW));
  const evidence = new EncryptionEvidence({ isAssumed: false });
  const first = await evidence.look(context, "secrets");
  evidence.settled(first.fingerprint);
  clock.advance(100_000);
  const second = await evidence.look({ ...context, arrivals: { ...UNSEEN_ARRIVALS, count: 1 } }, "secrets");
  t.not(second.fingerprint, first.fingerprint);
  t.equal(second.configHash, first.configHash);
  t.equal(second.since.seenAt, clock.monotonic(), "late writes are waited for again");
});

await tap.test("EncryptionEvidence has late writes waited for once, as long as nothing changes", async (t) => {
  let config = NEW;
  let kms = "";
  let text = (): string => metricsOf("lease-b", config);
  const { clock, context } = setting(() => text(), { a: () => metricsOf("lease-a", config) + kms });
  const evidence = new EncryptionEvidence({ isAssumed: false });
  const first = await evidence.look(context, "x");
  evidence.settled(first.fingerprint);
  clock.advance(30_000);
  const second = await evidence.look(context, "y");
  t.equal(second.since.seenAt, first.since.seenAt, "another resource does not wait again");
  t.equal(second.since.at, undefined, "no stamp is believed");
  config = OLD;
  const third = await evidence.look(context, "z");
  t.equal(third.since.seenAt, clock.monotonic(), "and again in full after a change");
  kms = KMS;
  text = () => metricsOf("lease-b", config) + KMS;
  const fourth = await evidence.look(context, "z");
  t.equal(
    fourth.since.seenAt,
    clock.monotonic() + 180_000,
    "a KMS v2 plugin may encrypt with its former key for longer",
  );
});

await tap.test("EncryptionEvidence has late writes waited for in full until one wait came to its end", async (t) => {
  let config = NEW;
  const { clock, context } = setting(() => metricsOf("lease-b", config), { a: () => metricsOf("lease-a", config) });
  const evidence = new EncryptionEvidence({ isAssumed: false });
  const first = await evidence.look(context, "x");
  clock.advance(30_000);
  const second = await evidence.look(context, "y");
  t.equal(second.since.seenAt, clock.monotonic(), "the wait of the first one was ended early");
  config = OLD;
  const third = await evidence.look(context, "y");
  clock.advance(1_000);
  evidence.settled(first.fingerprint);
  t.equal(
    (await evidence.look(context, "z")).since.seenAt,
    clock.monotonic(),
    "a wait for something else counts for nothing",
  );
  evidence.settled(third.fingerprint);
  const settledAt = clock.monotonic();
  clock.advance(1_000);
  t.equal((await evidence.look(context, "z")).since.seenAt, settledAt);
  config = NEW;
  await evidence.look(context, "z");
  clock.advance(1_000);
  t.equal((await evidence.look(context, "z")).since.seenAt, clock.monotonic(), "and nothing is kept over a change");
});

await tap.test("EncryptionEvidence counts from its last look where one before showed something else", async (t) => {
  let isOdd = false;
  const { clock, context, events } = setting(() => metricsOf("lease-b", isOdd ? OLD : NEW));
  const evidence = new EncryptionEvidence({ isAssumed: false });
  await evidence.look(context, "x");
  isOdd = true;
  await t.rejects(evidence.look(context, "x"), { code: "NotConverged", message: /https:\/\/b \(lease-b\)/ });
  t.equal(evidence.found, undefined);
  isOdd = false;
  const { since } = await evidence.look(context, "x");
  t.equal(since.seenAt, clock.monotonic());
  t.match(events.at(-2), { type: "lagging", server: "https://b (lease-b)" });
});

await tap.test(
  "EncryptionEvidence waits for an API server that does not answer or does not tell, and then names it",
  async (t) => {
    const { clock, context } = setting((ms) => (ms < 10_000 ? forbidden() : metricsOf("lease-b", NEW)));
    await new EncryptionEvidence({ isAssumed: false }).look(context, "x");
    t.ok(clock.monotonic() >= 10_000);
    const never = setting(forbidden);
    await t.rejects(new EncryptionEvidence({ isAssumed: false }).look(never.context, "x"), {
      code: "EncryptionUnknown",
      message: /https:\/\/b does not show which encryption configuration it uses: its \/metrics cannot be read/,
    });
    t.ok(never.clock.monotonic() >= 20_000, "for as long as it may take");
  },
);

await tap.test("EncryptionEvidence samples until the API server of each identity Lease has answered", async (t) => {
  const { context } = setting(() => metricsOf("lease-b", NEW), { mode: "sampled" });
  t.match(await new EncryptionEvidence({ isAssumed: false }).look(context, "x"), { configHash: NEW });
  const hidden = setting(() => metricsOf("lease-a", NEW), { mode: "sampled" });
  await t.rejects(new EncryptionEvidence({ isAssumed: false }).look(hidden.context, "x"), {
    code: "EncryptionUnknown",
    message: /identity Lease lease-b/,
  });
});

await tap.test("EncryptionEvidence samples until as many API servers have answered as were told apart", async (t) => {
  // The identity Lease of the second one is missing; its address shows that it is there.
  const leases = ["lease-a"];
  const { context } = setting(() => metricsOf("lease-b", NEW), { mode: "sampled", leases, areToldApart: true });
  t.match(await new EncryptionEvidence({ isAssumed: false }).look(context, "x"), { configHash: NEW });
  const hidden = setting(() => metricsOf("lease-a", NEW), { mode: "sampled", leases, areToldApart: true });
  await t.rejects(new EncryptionEvidence({ isAssumed: false }).look(hidden.context, "x"), {
    code: "EncryptionUnknown",
    message: /an API server/,
  });
});

await tap.test(
  "EncryptionEvidence that is assumed asks no API server, and has late writes waited for all the same",
  async (t) => {
    const { clock, context, events } = setting(() => "");
    clock.advance(5_000);
    const found = await new EncryptionEvidence({ isAssumed: true }).look(context, "x");
    t.match(found, { configHash: "assumed", since: { at: undefined, seenAt: 5_000 } });
    t.same(events, []);
  },
);

await tap.test(
  "EncryptionEvidence warns of an identity Lease that none of the API servers which a user names has",
  async (t) => {
    const { context, events } = setting(() => metricsOf("lease-a", NEW), { mode: "named" });
    await new EncryptionEvidence({ isAssumed: false }).look(context, "x");
    t.match(events.at(-1), { type: "warning", message: /is that of the identity Lease lease-b: if that one lives/ });
    const all = setting(() => metricsOf("lease-b", NEW), { mode: "named" });
    await new EncryptionEvidence({ isAssumed: false }).look(all.context, "x");
    t.same(
      all.events.map(({ type }) => type),
      ["encryptingAlike"],
    );
  },
);

await tap.test(
  "EncryptionEvidence of a controller waits for no API server before the first write, and at the end it does",
  async (t) => {
    let isOdd = true;
    let asked = 0;
    const b = (ms: number): string => {
      asked++;
      return metricsOf("lease-b", isOdd && ms < 20_000 ? OLD : NEW);
    };
    const { clock, context, events } = setting(b);
    const options = { isAssumed: false, isUnattended: true, recent: new RecentFailure() };
    const evidence = new EncryptionEvidence(options);
    const differs = {
      name: "EncryptionDiffers",
      code: "NotConverged",
      message: /^Cannot tell which key "x" has: .*lease-b.* of https:\/\/a \(lease-a\)$/,
    };
    await t.rejects(evidence.look(context, '"x"'), differs);
    t.equal(asked, 1);
    t.same(events, [], "it does not wait in its place");
    await t.rejects(new EncryptionEvidence(options).look(context, '"y"'), {
      code: "NotConverged",
      message: /which key "y" has/,
    });
    t.equal(asked, 1, "other migrations that look right after it ask no API server");
    clock.advance(5_000);
    await t.rejects(evidence.look(context, '"x"'), differs);
    t.equal(asked, 2, "and later they do");
    isOdd = false;
    clock.advance(5_000);
    t.match(await evidence.look(context, '"x"'), { configHash: NEW });
    isOdd = true;
    t.match(await evidence.look(context, '"x"', { isRepeated: true }), { configHash: NEW });
    t.ok(clock.monotonic() >= 20_000, "what was written is not given up at once");
  },
);

await tap.test(
  "EncryptionEvidence of a controller says nothing of flags where an API server does not tell",
  async (t) => {
    const { context } = setting(forbidden);
    const evidence = new EncryptionEvidence({ isAssumed: false, isUnattended: true });
    await t.rejects(evidence.look(context, "x"), {
      code: "EncryptionUnknown",
      message: /cannot be read.*see docs\/reencryption\.md$/,
    });
  },
);

const started = (at: number, gate: 0 | 1): string =>
  `process_start_time_seconds ${at}\nkubernetes_feature_enabled{name="CBORServingAndStorage",stage="ALPHA"} ${gate}\n`;

/** Writes CBOR after five seconds. */
const late = (ms: number): string => started(2, ms < 5_000 ? 0 : 1);

await tap.test(
  "EncryptionEvidence needs no configuration where a user means an encoding, and waits for it",
  async (t) => {
    const { context, events } = setting(late, { a: () => started(1, 1) });
    const options = { isAssumed: false, expectedEncoding: "cbor" } as const;
    const found = await new EncryptionEvidence(options).look(context, "widgets");
    t.match(found, { configHash: NONE_SHOWN, encoding: "cbor" });
    t.match(events, [{ type: "lagging", server: "https://b", reason: /stores custom resources as JSON/ }]);

    const expectsConfig = new EncryptionEvidence({ ...options, expectedConfig: NEW }).look(context, "widgets");
    await t.rejects(expectsConfig, { code: "EncryptionUnknown" }, "one that is expected has to be shown");
    const one = setting(() => metricsOf("lease-b", NEW) + started(2, 1), { a: () => started(1, 1) });
    const halfShown = new EncryptionEvidence(options).look(one.context, "widgets");
    await t.rejects(halfShown, { code: "EncryptionUnknown" }, "and so has one that another API server shows");
    const never = setting(() => started(2, 0), { a: () => started(1, 1) });
    await t.rejects(new EncryptionEvidence(options).look(never.context, "widgets"), { code: "NotConverged" });
  },
);

await tap.test(
  "EncryptionEvidence asks new connections until as many processes answered as API servers live",
  async (t) => {
    let asked = 0;
    const count = (at: number) => (): string => {
      asked++;
      return started(at, 1);
    };
    const { context } = setting(count(2), { mode: "sampled", a: count(1) });
    const found = await new EncryptionEvidence({ isAssumed: false, expectedEncoding: "cbor" }).look(context, "widgets");
    t.equal(found.encoding, "cbor");
    t.equal(asked, 20, "and not forty, since none of them names its Lease");
  },
);

await tap.test(
  "EncryptionEvidence that is optional names no configuration where a KMS v1 plugin encrypts",
  async (t) => {
    const labels = `resource="secrets",status="OK",transformation_type="to_storage",transformer_prefix="k8s:enc:kms:v1:vault:"`;
    const counted = `apiserver_storage_transformation_operations_total{${labels}} 1\n`;
    const { context, events } = setting(() => metricsOf("lease-b", NEW) + counted);
    const evidence = new EncryptionEvidence({ isAssumed: false, isOptional: true, isUnattended: true });
    for (const resource of ["secrets", "configmaps"]) {
      await evidence.look(context, resource, { resource });
    }
    t.equal(evidence.foundFor("secrets", 5)?.configHash, NONE_SHOWN);
    t.equal(evidence.foundFor("configmaps", 5)?.configHash, NEW);
    t.equal(events.filter(({ type }) => type === "warning").length, 1, "it warns of that before its first write");
    const claiming = new EncryptionEvidence({ isAssumed: false, isUnattended: true });
    await t.rejects(claiming.look(context, "secrets", { resource: "secrets" }), { code: "EncryptionUnknown" });
  },
);
