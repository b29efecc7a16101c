import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { upgradeCrd } from "../../src/upgrade/upgrade-crd.ts";
import { crdWith } from "../api/crd-with.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { ManualClock } from "../manual-clock.ts";
import { fileWith } from "../plan/check-situation.ts";

const CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";

/** As Kubernetes' own migrator leaves it when its second migration begins: pruned, and nothing rewritten. */
function prunedAtStart(crd: CustomResourceDefinition): CustomResourceDefinition {
  const conditions = [{ type: STORAGE_MIGRATING_CONDITION, status: "True", reason: "MigrationRunning" }];
  const metadata = { ...crd.metadata, resourceVersion: "101" };
  return { ...crd, metadata, status: { storedVersions: ["v2"], conditions } };
}

await tap.test(
  "upgradeCrd() writes no file where another migrator prunes between the check and the step",
  async (t) => {
    let crd = crdWith();
    const writes: unknown[] = [];
    // A stand-in: a real API server does not let another client write at this very moment.
    const server = await startServer(t, ({ body, headers, method, path, query }, response) => {
      if (path === "/apis") return sendJson(response, 200, groupList("apiextensions.k8s.io/v1"));
      if (path.startsWith("/apis/example.com/v2/")) {
        crd = prunedAtStart(crd);
        const metadata = { resourceVersion: "102" };
        return sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata, items: [] });
      }
      if (path !== CRD_PATH) return sendStatus(response, 404);
      if (method === "GET") return sendJson(response, 200, crd);
      if (headers["content-type"]?.includes("apply") !== true) {
        const [{ value: resourceVersion }] = body as [{ value: string }];
        if (resourceVersion !== crd.metadata.resourceVersion) return sendStatus(response, 409, { reason: "Conflict" });
        if (!query.has("dryRun")) writes.push(body);
      }
      return sendJson(response, 200, crd);
    });
    const { signal } = new AbortController();
    const retrier = new Retrier({ clock: new ManualClock(), random: () => 0.5, maxIdleMs: 5_000 });
    const calls = { client: new ApiClient(server.transport()), retrier, signal };
    const steps: string[] = [];
    const end = await upgradeCrd(
      {
        ...calls,
        checking: calls,
        isApplied: true,
        migrate: () => Promise.resolve(true),
        onStep: ({ kind }) => steps.push(kind),
      },
      fileWith(["v2+"]),
    );
    t.match(end, { outcome: "refused", entry: { verdict: "data-loss", reason: /drops v1.*storedVersions/ } });
    t.strictSame(writes, []);
    t.strictSame(steps, ["migrate"]);
  },
);
