import tap from "tap";
import { WEBHOOK_NAME, WEBHOOK_SECRET } from "../../../src/api/names.ts";
import { type IssuedPair, issueCa, issueServing } from "../../../src/certs/issue.ts";
import { SimEtcd } from "../model/etcd.ts";
import type { ModelObject } from "../model/model-object.ts";
import { installedIn, NAMESPACE } from "../programs/installed-webhook.ts";
import { seededKeys } from "../world/seeded-keys.ts";
import { timeOf } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import { TrustCheck } from "./trust-check.ts";

const SECRET = `/registry/secrets/${NAMESPACE}/${WEBHOOK_SECRET}`;
const SECRET_PATH = `/api/v1/namespaces/${NAMESPACE}/secrets/${WEBHOOK_SECRET}`;
const HOUR_MS = 3_600_000;
const keys = seededKeys(() => 0.5);

interface Certificates {
  readonly ca: IssuedPair;
  readonly serving: IssuedPair;
}

/** @param now milliseconds since the world was set up, by the clock that they are issued by */
async function issuedAt(now: number, lifetimeMs = 24 * HOUR_MS): Promise<Certificates> {
  const validity = { now: new Date(timeOf({ now })), lifetimeMs, keys };
  const ca = await issueCa(validity);
  const serving = await issueServing({ ca, ...validity, dnsNames: ["webhook"], ipAddresses: [] });
  return { ca, serving };
}

type Exchange = (request: { readonly method: string; readonly path: string }) => (answer: { status: number }) => void;

/** One API server and one replica of the webhook, and what the check says of them. */
function checked() {
  const etcd = new SimEtcd();
  const violations: string[] = [];
  const schedule = {
    now: 0,
    /** What the check does next. */
    look: (): void => undefined,
    in: (_ms: number, run: () => void) => void (schedule.look = run),
  };
  const server = { name: "server-0", isPaused: false, aheadMs: 0 };
  const replica = { name: "ksvm-0-0", isPaused: false, aheadMs: 0, onCrash: () => undefined };
  const hook = { name: WEBHOOK_NAME, caBundle: "" };
  const node = { process: server, lags: { admission: 0 }, api: { admission: { validating: [hook] } } };
  const cluster = { etcd, nodes: [node], webhooks: new Map(), onExchange: (() => () => undefined) as Exchange };
  const world = {
    plan: { programs: [{ run: "webhook" }] },
    programs: [{ process: replica }],
    cluster,
    schedule,
    streams: () => () => 0.5,
    isCalm: true,
    calmAt: 0,
    violate: (violation: string) => void violations.push(violation),
  } as unknown as World;
  let certPem: string | undefined;
  const process = replica as unknown as Parameters<ReturnType<typeof installedIn>["service"]["add"]>[0]["process"];
  installedIn(world).service.add({ process, host: "10.244.0.0", certPem: () => certPem, ready: () => undefined });
  TrustCheck.of(world, () => true);
  const write = ({ ca, serving }: Certificates): void => {
    const data = { "ca.crt": btoa(ca.certPem), "tls.crt": btoa(serving.certPem) };
    const object = { metadata: { name: WEBHOOK_SECRET }, data } as unknown as ModelObject;
    etcd.put(SECRET, { object }, etcd.get(SECRET)?.modRevision ?? 0);
  };
  return {
    violations,
    /** A replica writes the Secret, and is answered that. */
    answer: (status: number): void => cluster.onExchange({ method: "PUT", path: SECRET_PATH })({ status }),
    /** The clock of the API server is wrong from now on. */
    setWrong: (ms: number): void => void (server.aheadMs = ms),
    write,
    serve: ({ serving }: Certificates): void => void (certPem = serving.certPem),
    trust: ({ ca }: Certificates): void => void (hook.caBundle = btoa(ca.certPem)),
    /** A replica serves certificates that the Secret has, and the API server trusts them. */
    install: (all: Certificates): void => {
      write(all);
      certPem = all.serving.certPem;
      hook.caBundle = btoa(all.ca.certPem);
    },
    wait: (ms: number): void => {
      for (const until = schedule.now + ms; schedule.now < until; ) {
        schedule.now += 250;
        schedule.look();
      }
    },
  };
}

/** The same, some minutes after a wrong clock issued the certificates; the clock of the API server is as wrong. */
async function checkedAhead(): Promise<ReturnType<typeof checked>> {
  const all = checked();
  all.setWrong(HOUR_MS);
  all.install(await issuedAt(HOUR_MS));
  all.wait(200_000);
  return all;
}

await tap.test(
  "certificates that a wrong clock made may be replaced without an overlap, and the next ones may not",
  async (t) => {
    const { violations, serve, trust, wait, write } = await checkedAhead();
    t.same(violations, [], "they are not valid yet");
    const valid = await issuedAt(200_000);
    write(valid);
    serve(valid);
    wait(3_000);
    t.same(violations, [], "the API server follows");
    trust(valid);
    wait(200_000);
    t.same(violations, []);
    const other = await issuedAt(400_000);
    write(other);
    serve(other);
    wait(250);
    t.same(violations, ["trust: server-0 does not trust ksvm-0-0"]);
  },
);

await tap.test("what replaces certificates of a wrong clock has to be trusted two minutes later", async (t) => {
  const { violations, serve, wait, write } = await checkedAhead();
  const valid = await issuedAt(200_000);
  write(valid);
  serve(valid);
  wait(119_000);
  t.same(violations, []);
  wait(2_000);
  t.ok(violations.length > 0);
});

/** The same, 100 seconds before its certificates end. */
async function checkedShort(): Promise<ReturnType<typeof checked>> {
  const all = checked();
  all.install(await issuedAt(0, 400_000));
  all.wait(300_000);
  return all;
}

await tap.test(
  "a certificate may end that others let nobody renew, and none whose renewal was not refused",
  async (t) => {
    for (const [answers, isExcused] of [
      [[500, 409], true],
      [[500, 200], false],
      [[409], false],
    ] as const) {
      const { answer, violations, wait } = await checkedShort();
      for (const status of answers) answer(status);
      t.same(violations, []);
      wait(110_000);
      t.equal(violations.length === 0, isExcused, answers.join());
    }
  },
);

await tap.test("a certificate that ended is replaced soon once nobody refuses that any more", async (t) => {
  const { answer, violations, wait } = await checkedShort();
  answer(500);
  wait(110_000);
  answer(200);
  wait(119_000);
  t.same(violations, []);
  wait(2_000);
  t.ok(violations.length > 0);
});
