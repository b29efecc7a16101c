import tap, { type Test } from "tap";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { type Clock, systemClock } from "../../src/clock.ts";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { readDoctorFacts } from "../../src/doctor/doctor-facts.ts";
import { ApiClient } from "../../src/kube/client.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const IN_TREE = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
const metadata = { resourceVersion: "1" };
const MIGRATING = { type: STORAGE_MIGRATING_CONDITION, status: "True", reason: "MigrationRunning" };
const SUCCEEDED = { type: STORAGE_MIGRATING_CONDITION, status: "False", reason: "MigrationSucceeded" };
const FAILED = { type: STORAGE_MIGRATING_CONDITION, status: "False", reason: "MigrationFailed" };
const ESTABLISHED = { type: "Established", status: "True" };
const ENDED = {
  metadata: { name: "bump", uid: "u", ...metadata },
  spec: { resource: { group: "example.com", resource: "widgets" } },
  status: { conditions: [{ type: "Succeeded", status: "True" }] },
};

/** What is found where the condition is this one once the migrations were listed. */
async function foundWith(t: Test, after: object | undefined, before: object = MIGRATING): Promise<readonly string[]> {
  let condition: object | undefined = before;
  // A stand-in: no real API server ends a migration at this very moment.
  const server = await startServer(t, ({ path }, response) => {
    if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
    if (path.startsWith("/apis/example.com/")) {
      return sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata, items: [] });
    }
    if (path === IN_TREE) {
      condition = after;
      return sendJson(response, 200, { kind: "List", metadata, items: [ENDED] });
    }
    return path === `${CRDS}/widgets.example.com` && condition !== undefined
      ? sendJson(response, 200, { ...crdWith(), status: { storedVersions: ["v2"], conditions: [condition] } })
      : sendStatus(response, 404, { reason: "NotFound", details: { name: "widgets.example.com" } });
  });
  return findingsOf(server.transport(), systemClock);
}

async function findingsOf(transport: Transport, clock: Clock): Promise<readonly string[]> {
  const retrier = new Retrier({ clock, random: Math.random, maxIdleMs: 1_000 });
  const { signal } = new AbortController();
  const context = { client: new ApiClient(transport), clock, retrier, signal };
  const findings = diagnose(await readDoctorFacts(context, ["widgets.example.com"]));
  return findings.map(({ finding, severity }) => (severity === "unknown" ? `${finding} (unknown)` : finding));
}

await tap.test("readDoctorFacts() takes no migration that ended while it looked for one that never did", async (t) => {
  t.strictSame(await foundWith(t, SUCCEEDED), []);
  t.strictSame(await foundWith(t, undefined), [], "nor where the CRD was deleted");
});

await tap.test("readDoctorFacts() takes no prune for unproven that a run of ksvm proved while it looked", async (t) => {
  t.strictSame(await foundWith(t, ESTABLISHED, FAILED), [], "its prune takes the condition off");
  t.strictSame(await foundWith(t, FAILED, FAILED), ["unproven-prune"], "negative control");
});

await tap.test("readDoctorFacts() finds the condition that nothing explains; negative control", async (t) => {
  t.strictSame(await foundWith(t, MIGRATING), ["unproven-prune", "stuck-storage-migrating"]);
});

const LEASE = leaseNameOf("widgets.example.com");
const BY_HAND = { [MIGRATING_ANNOTATION]: "by-hand" };
const CLEAN = { ...crdWith(), status: { storedVersions: ["v2"] } };

function frozen(annotations: Readonly<Record<string, string>>): object {
  return crdWith({ metadata: { annotations } });
}

/** The freeze of a run. */
function byRun(identity: string): Readonly<Record<string, string>> {
  const owner = formatOwner({ lease: `kube-system/${LEASE}`, identity, since: "2026-01-01T00:00:00.000Z" });
  return { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: owner };
}

/**
 * What is found where each read finds the CRD like this, the last one from then on.
 * @param renewedFrom the read from which on a run renews the Lease that was gone until then
 */
async function foundIn(t: Test, crds: readonly object[], renewedFrom = Infinity): Promise<readonly string[]> {
  let [reads, version] = [0, 0];
  // A stand-in: no real API server has a run end at this very moment.
  const server = await startServer(t, ({ path }, response) => {
    if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
    if (path === `${CRDS}/widgets.example.com`)
      return sendJson(response, 200, crds[Math.min(reads++, crds.length - 1)]);
    const renewed = { metadata: { name: LEASE, uid: "l", resourceVersion: String(++version) } };
    const isRenewed = path.endsWith("/leases") && reads >= renewedFrom;
    return sendJson(response, 200, { kind: "List", metadata, items: isRenewed ? [renewed] : [] });
  });
  return findingsOf(server.transport(), new FakeClock());
}

await tap.test("readDoctorFacts() calls no run dead that lifted its freeze and ended while it looked", async (t) => {
  t.strictSame(await foundIn(t, [frozen(byRun("a")), CLEAN]), []);
  const stuck = await foundIn(t, [frozen(byRun("a"))]);
  t.strictSame(stuck, ["stale-stored-versions", "stuck-freeze"], "negative control");
});

await tap.test("readDoctorFacts() finds no freeze of another client that was lifted while it looked", async (t) => {
  t.strictSame(await foundIn(t, [frozen(BY_HAND), CLEAN]), []);
  t.strictSame(await foundIn(t, [frozen(BY_HAND)]), ["stale-stored-versions", "foreign-freeze"], "negative control");
});

await tap.test("readDoctorFacts() judges the run that froze a CRD after the one that it took for dead", async (t) => {
  t.strictSame(await foundIn(t, [frozen(byRun("a")), frozen(byRun("b"))], 2), [], "it lives");
  t.strictSame(await foundIn(t, [frozen(byRun("a")), frozen(byRun("b")), CLEAN]), [], "it has ended, too");
  const stuck = await foundIn(t, [frozen(byRun("a")), frozen(byRun("b"))]);
  t.strictSame(stuck, ["stale-stored-versions", "stuck-freeze"], "negative control");
});

await tap.test("readDoctorFacts() does not tell of a run whether it lives where each look finds another", async (t) => {
  const crds = ["a", "b", "c"].map((identity) => frozen(byRun(identity)));
  t.strictSame(await foundIn(t, crds), ["stale-stored-versions", "stuck-freeze (unknown)"]);
});
