import tap from "tap";
import { UNSEEN_ARRIVALS } from "../../src/apiservers/arrivals.ts";
import { type EncryptionContext, EncryptionEvidence, NONE_SHOWN } from "../../src/apiservers/encryption-evidence.ts";
import {
  describeChangeAmong,
  describeNotShown,
  describeUnnamed,
  describeVerification,
  describeVerifications,
} from "../../src/cli/render/render-verification.ts";
import { type Verification, verdictOf } from "../../src/verify/verification.ts";
import { FakeClock } from "../fake-clock.ts";

function verification(fields: Partial<Verification> = {}): Verification {
  const counts = fields.counts ?? { current: 1_204_331, changed: 0, gone: 0, notShown: 0 };
  return {
    resource: "widgets.example.com",
    outcome: verdictOf(counts),
    counts,
    apiServers: { servers: ["https://a", "https://b", "https://c"], of: 3 },
    watermark: "77",
    storageVersion: "v1",
    encryption: "sha256:ab",
    changed: [],
    notShown: [],
    ...fields,
  };
}

await tap.test("describeVerification() is a statement with numbers, and says what it rests on", async (t) => {
  t.equal(
    describeVerification(verification()),
    "1,204,331 objects current on 3 of 3 API servers (https://a, https://b, https://c), 0 changed, watermark 77; " +
      'storage version "v1", encryption configuration sha256:ab',
  );
  const {
    storageVersion: _,
    encryption: __,
    ...builtIn
  } = verification({
    counts: { current: 5, changed: 1, gone: 2, notShown: 3 },
    storageVersionHash: "abc=",
  });
  t.equal(
    describeVerification({ ...builtIn, apiServers: { servers: ["https://lb"], of: 3, isShared: true } }),
    "5 objects current on 1 of 3 API servers (any one of those behind https://lb), 1 changed, 3 not shown, 2 deleted since, " +
      'watermark 77; storageVersionHash "abc=", the encryption configuration was not looked at',
  );
  const unknown = verification({ encryption: NONE_SHOWN, apiServers: { servers: ["https://lb"], isShared: true } });
  t.match(describeVerification(unknown), "on 1 of an unknown number of API servers");
  t.match(describeVerification(unknown), "no API server shows an encryption configuration");
  t.match(describeVerification(verification({ encoding: "cbor" })), 'storage version "v1" as CBOR, encryption');
});

await tap.test("describeNotShown() and describeUnnamed() name objects and count those they do not name", async (t) => {
  const counts = { current: 0, changed: 101, gone: 0, notShown: 3 };
  const value = verification({ counts, notShown: [{ namespace: "ns", name: "a", reason: "denied" }] });
  t.same(describeNotShown(value), ["  ns/a: denied", "  and 2 more"]);
  t.same(describeUnnamed(value), ["101 more objects were not current, and are not named"]);
  t.same([describeNotShown(verification()), describeUnnamed(verification())], [[], []]);
});

await tap.test("describeVerifications() sums up several resources", async (t) => {
  const changed = verification({ counts: { current: 4, changed: 1, gone: 0, notShown: 2 } });
  t.equal(
    describeVerifications([verification(), changed], ["secrets"]),
    "verified: all objects of 1 of 3 resources are current: 1,204,335 objects current, 1 changed, 2 not shown; " +
      "nothing is known of secrets",
  );
});

await tap.test("describeChangeAmong() does not call it another encryption where an API server joined", async (t) => {
  const evidence = new EncryptionEvidence({ isAssumed: true });
  const lookAfter = async (joined: number) => {
    const arrivals = { ...UNSEEN_ARRIVALS, count: joined };
    const context = { arrivals, clock: new FakeClock(), findApiServers: async () => ({ mode: "each", clients: [] }) };
    return evidence.look(context as unknown as EncryptionContext, "widgets.example.com");
  };
  const [first, second, joined] = [await lookAfter(0), await lookAfter(0), await lookAfter(1)];
  t.equal(describeChangeAmong([first, second]), undefined);
  t.equal(
    describeChangeAmong([first, second, joined]),
    "between two resources an API server may have come, gone or changed its encryption: run again",
  );
  t.equal(
    describeChangeAmong([first, { ...first, configHash: "sha256:cd", fingerprint: "another" }]),
    "the API servers changed their encryption between two resources: run again",
  );
});

await tap.test("describeChangeAmong() finds none where it is not looked at how API servers encrypt", async (t) => {
  t.equal(describeChangeAmong([]), undefined);
  t.equal(describeChangeAmong([undefined, undefined]), undefined);
});
