import tap, { type Test } from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { checkManifest } from "../../src/plan/check-facts.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { fileWith } from "./check-situation.ts";

const FORBIDDEN =
  'storageversionmigrations.storagemigration.k8s.io is forbidden: User "u" cannot list resource "storageversionmigrations" in API ' +
  'group "storagemigration.k8s.io" at the cluster scope';

/** The notes on a file that drops v1, which storedVersions does not list. */
async function notesWhere(t: Test, mayList: boolean): Promise<readonly string[]> {
  const live = { ...crdWith(), status: { storedVersions: ["v2"] } };
  // A stand-in: test/integration/check.test.ts asks a real API server.
  const server = await startServer(t, ({ path }, response) => {
    if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
    if (path.endsWith(`/customresourcedefinitions/${live.metadata.name}`)) return sendJson(response, 200, live);
    const isHidden = path.endsWith("/storageversionmigrations") && !mayList;
    return isHidden
      ? sendStatus(response, 403, { reason: "Forbidden", message: FORBIDDEN })
      : sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "1" }, items: [] });
  });
  const retrier = new Retrier({ clock: new FakeClock(), random: () => 0.5, maxIdleMs: 1_000 });
  const context = { client: new ApiClient(server.transport()), retrier, signal: new AbortController().signal };
  return (await checkManifest(context, fileWith(["v2+"]), { isReplaced: false })).entry.notes;
}

await tap.test("checkManifest() tells that it could not look at migrations of Kubernetes' own migrator", async (t) => {
  const unseen = /this user may not list storageversionmigrations/;
  t.match((await notesWhere(t, false)).join("\n"), unseen);
  t.notMatch((await notesWhere(t, true)).join("\n"), unseen, "negative control");
});
