import { pino } from "pino";
import tap from "tap";
import { WEBHOOK_NAME } from "../../src/api/names.ts";
import type { BundleHolder } from "../../src/certs/ca-bundle.ts";
import { PublishedTrust } from "../../src/certs/published-trust.ts";
import type { ServingPair } from "../../src/webhook/serving-certificate.ts";
import { issueServing } from "../webhook/issue-serving.ts";

const [ours, other] = await Promise.all([issueServing(), issueServing()]);
const CONFIGURATION = `ValidatingWebhookConfiguration "${WEBHOOK_NAME}"`;
const UNREAD = `${CONFIGURATION} has not been read yet`;
const EMPTY = `the caBundle of ${CONFIGURATION} is empty`;
const OTHER_CA = new RegExp(`^the caBundle of ${CONFIGURATION} does not trust the serving certificate: none of its`);

function holder(caBundle: string | undefined, resourceVersion = "1"): BundleHolder {
  const clientConfig = caBundle === undefined ? {} : { caBundle };
  return { metadata: { name: WEBHOOK_NAME, resourceVersion }, webhooks: [{ name: WEBHOOK_NAME, clientConfig }] };
}

function trusting({ isBundleOptional = false, serverName = "localhost", times = [Date.now()] } = {}) {
  const certificate: { current: ServingPair | undefined } = { current: ours.pair };
  const lines: string[] = [];
  const logger = pino({ base: null }, { write: (line: string) => lines.push(line) });
  const trust = new PublishedTrust({ certificate, isBundleOptional, serverName, times: () => times, logger });
  return { trust, certificate, lines };
}

const states: readonly [name: string, live: BundleHolder | undefined, lacking: string | RegExp][] = [
  ["there is no configuration", undefined, `${CONFIGURATION} does not exist`],
  ["it has no webhook", { metadata: {}, webhooks: [] }, `${CONFIGURATION} has no webhook of this name`],
  ["it has no caBundle", holder(undefined), EMPTY],
  ["its caBundle is empty", holder(""), EMPTY],
  ["its caBundle is another CA's", holder(other.caBundle), OTHER_CA],
  ["its caBundle is a placeholder", holder("Cg=="), /trust.*: it holds no certificate that can be read$/],
];

for (const [name, live, lacking] of states) {
  await tap.test(`lacking() says so when ${name}, until the right caBundle was read`, async (t) => {
    const { trust, lines } = trusting();
    t.equal(trust.lacking(), UNREAD);
    trust.saw(live);
    t.match(trust.lacking(), lacking);
    t.notMatch(trust.lacking(), /\n/, "one line");
    trust.saw(holder(ours.caBundle, "2"));
    t.equal(trust.lacking(), undefined);
    t.equal(lines.length, 3, "each is logged once");
  });
}

await tap.test("lacking() stays undefined once it was", async (t) => {
  const { trust, certificate } = trusting();
  trust.saw(holder(ours.caBundle));
  for (const live of [holder("", "2"), holder(other.caBundle, "3"), undefined]) {
    trust.saw(live);
    t.equal(trust.lacking(), undefined);
  }
  certificate.current = other.pair;
  t.equal(trust.lacking(), undefined);
});

await tap.test("lacking() is undefined once the right caBundle was read, if only for a moment", async (t) => {
  const { trust } = trusting();
  trust.saw(holder(ours.caBundle));
  trust.saw(holder("", "2"));
  t.equal(trust.lacking(), undefined);
});

await tap.test("lacking() waits for the certificate, too", async (t) => {
  const { trust, certificate } = trusting();
  certificate.current = undefined;
  trust.saw(holder(ours.caBundle));
  t.equal(trust.lacking(), "there is no serving certificate yet");
  certificate.current = other.pair;
  t.match(trust.lacking(), OTHER_CA);
  certificate.current = ours.pair;
  t.equal(trust.lacking(), undefined);
});

await tap.test("saw() believes what is newest, in whatever order it comes", async (t) => {
  const { trust, certificate } = trusting();
  certificate.current = undefined;
  trust.saw(holder(ours.caBundle, "10"));
  trust.saw(holder("", "9"));
  certificate.current = ours.pair;
  t.equal(trust.lacking(), undefined);
});

await tap.test(
  "saw() believes an older one by a read from etcd that was sent after the newer one was seen",
  async (t) => {
    const { trust } = trusting();
    trust.saw(holder("", "10"));
    trust.saw(holder(ours.caBundle, "5"), "4");
    t.match(trust.lacking(), EMPTY, "the newer one overtook the read");
    trust.saw(holder(ours.caBundle, "5"));
    t.match(trust.lacking(), EMPTY, "a watch that is behind");
    trust.saw(holder(ours.caBundle, "5"), trust.resourceVersion);
    t.equal(trust.lacking(), undefined, "etcd was restored from a backup");
  },
);

await tap.test("lacking() lets an empty caBundle pass where it is optional, and no wrong one", async (t) => {
  const { trust } = trusting({ isBundleOptional: true });
  t.equal(trust.lacking(), UNREAD);
  trust.saw(undefined);
  t.equal(trust.lacking(), `${CONFIGURATION} does not exist`);
  trust.saw(holder(other.caBundle, "2"));
  t.match(trust.lacking(), OTHER_CA);
  trust.saw(holder("", "3"));
  t.equal(trust.lacking(), undefined);
});

await tap.test(
  "lacking() says so when the certificate is not valid for the name by which API servers call",
  async (t) => {
    const { trust } = trusting({ serverName: "ksvm-webhook.ksvm.svc" });
    trust.saw(holder(ours.caBundle));
    t.match(
      trust.lacking(),
      /^the serving certificate is not valid for ksvm-webhook\.ksvm\.svc, .*; its names: DNS:localhost/,
    );
  },
);

await tap.test(
  "lacking() takes no replica away for one wrong clock, and says so where all are beyond the validity",
  async (t) => {
    const inFuture = Date.now() + 400 * 86_400_000;
    const oneWrong = trusting({ times: [inFuture, Date.now()] }).trust;
    oneWrong.saw(holder(ours.caBundle));
    t.equal(oneWrong.lacking(), undefined);
    const bothWrong = trusting({ times: [inFuture, inFuture] }).trust;
    bothWrong.saw(holder(ours.caBundle));
    t.match(bothWrong.lacking(), /does not trust the serving certificate: .* is valid from/);
  },
);
