import tap, { type Test } from "tap";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import { diagnose } from "../../src/doctor/diagnose.ts";
import { readDoctorFacts } from "../../src/doctor/doctor-facts.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
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
  const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: 1_000 });
  const { signal } = new AbortController();
  const context = { client: new ApiClient(server.transport()), clock: systemClock, retrier, signal };
  return diagnose(await readDoctorFacts(context, ["widgets.example.com"])).map(({ finding }) => finding);
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
