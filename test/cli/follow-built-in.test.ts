import tap, { type Test } from "tap";
import { followMigration } from "../../src/cli/commands/follow-migration.ts";
import { systemClock } from "../../src/clock.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { groupList, resourceList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";

const NAME = "deployments.apps";
const MIGRATIONS_PATH = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

function migrationWith(conditions: readonly object[]): object {
  return {
    apiVersion: "migration.k8s.io/v1alpha1",
    kind: "StorageVersionMigration",
    metadata: { name: "m", uid: "u", resourceVersion: "5" },
    spec: { resource: { group: "apps", version: "v1", resource: "deployments" } },
    status: { conditions },
  };
}

/** What the command says at last of a migration of a built-in resource that ended as `succeeded` says. A stand-in: no real migrator ends one on demand. */
async function followed(t: Test, succeeded: object): Promise<{ outcome: string; note: string | undefined }> {
  const server = await startServer(t, ({ method, path, query }, response) => {
    if (path === MIGRATIONS_PATH) {
      const items = [migrationWith([{ type: "Succeeded", status: "True", ...succeeded }])];
      return method === "POST"
        ? sendJson(response, 201, migrationWith([]))
        : query.get("watch") === null
          ? sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "7" }, items })
          : sendStatus(response, 503, { message: "no upgrade" });
    }
    const crdPath = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${NAME}`;
    if (path === crdPath) {
      return sendStatus(response, 404, { reason: "NotFound", details: { name: NAME } });
    }
    const answers: Readonly<Record<string, object>> = {
      "/api": { kind: "APIVersions", versions: [] },
      "/apis": groupList("apps/v1"),
      "/apis/apps/v1": resourceList("apps/v1", "deployments"),
    };
    const answer = answers[path];
    return answer === undefined ? sendStatus(response, 404) : sendJson(response, 200, answer);
  });
  const notes: string[] = [];
  const client = new ApiClient(server.transport());
  const reporter = { event: () => undefined, note: (text: string) => void notes.push(text) };
  const signal = AbortSignal.timeout(25_000);
  const { outcome } = await followMigration({ client, clock: systemClock, reporter, force: false, signal }, NAME);
  return { outcome, note: notes.at(-1) };
}

await tap.test("ksvm migrate of a built-in resource believes no migrator but a run of ksvm", async (t) => {
  const note =
    /^not migrated: .*another migrator than ksvm may have written\. .* ksvm migrate deployments\.apps --standalone$/;
  for (const given of [{}, { reason: "theirs" }, { reason: "NothingToDo" }]) {
    t.match(await followed(t, given), { outcome: "incomplete", note }, JSON.stringify(given));
  }
  for (const reason of ["Migrated", "Reencrypted"]) {
    t.match(await followed(t, { reason }), { outcome: "migrated", note: /^cannot watch the migration/ }, reason);
  }
});
