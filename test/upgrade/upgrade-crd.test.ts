import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { upgradeCrd } from "../../src/upgrade/upgrade-crd.ts";
import { type CrdTraits, crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
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

await tap.test(
  "upgradeCrd() stores nothing in a new version beside the old one until the webhook of the file converts",
  async (t) => {
    const begin: readonly CrdTraits[] = [
      { versions: ["v1+"], storedVersions: ["v1"] },
      { versions: ["v1+", "v2-"], storedVersions: ["v1"] },
      { versions: ["v1+", "v2"], storedVersions: ["v1", "v2"] },
    ];
    for (const [traits, isUp] of begin.flatMap((one) => [[one, false] as const, [one, true] as const])) {
      let crd = crdWith(traits);
      const before = crd.spec;
      const written: string[] = [];
      // A stand-in: test/integration/migrate-files.test.ts asks a real API server.
      const server = await startServer(t, ({ body, headers, method, path, query }, response) => {
        const metadata = { resourceVersion: "1" };
        const noObjects = { kind: "PartialObjectMetadataList", metadata, items: [] };
        if (path === "/apis") return sendJson(response, 200, groupList("apiextensions.k8s.io/v1"));
        if (path.startsWith("/apis/example.com/v1/")) return sendJson(response, 200, noObjects);
        if (path.startsWith("/apis/example.com/v2/")) {
          const message = 'conversion webhook for example.com/v1, Kind=Widget failed: Post "https://b.a.svc": refused';
          return isUp ? sendJson(response, 200, noObjects) : sendStatus(response, 500, { message });
        }
        if (path !== CRD_PATH) return sendStatus(response, 404);
        const isPatch = method === "PATCH" && headers["content-type"]?.includes("json-patch") === true;
        if (isPatch && !query.has("dryRun")) {
          const spec = (body as { path: string; value: object }[]).find((one) => one.path === "/spec")?.value;
          crd = { ...crd, spec: spec as typeof before };
          const { generation = 0, resourceVersion } = crd.metadata;
          const next = { generation: generation + 1, resourceVersion: `${Number(resourceVersion) + 1}` };
          crd = { ...crd, metadata: { ...crd.metadata, ...next } };
          written.push(crd.spec.versions.map((one) => `${one.name}${one.storage ? "+" : ""}`).join(","));
        }
        return sendJson(response, 200, crd);
      });
      const { signal } = new AbortController();
      const clock = new FakeClock();
      const limits = { maxIdleMs: 5_000, webhookWaitMs: 5_000 };
      const retrier = new Retrier({ clock, random: () => 0.5, ...limits });
      const calls = { client: new ApiClient(server.transport()), retrier, signal };
      const file = fileWith(["v1", "v2+"]);
      const conversion = { strategy: "Webhook", webhook: { clientConfig: { url: "https://b.a.svc" } } };
      const spec = { ...(file.object["spec"] as object), conversion };
      const manifest = { ...file, object: { ...file.object, spec } };
      const steps = { migrate: () => Promise.resolve(true), onStep: () => undefined };
      const ended = upgradeCrd({ ...calls, checking: calls, isApplied: true, ...steps }, manifest);
      await (isUp
        ? t.resolveMatch(ended, { outcome: "done" })
        : t.rejects(ended, { message: /cannot be read in v2: .*again as it was/ }));
      t.strictSame(written, isUp ? ["v1+,v2", "v1,v2+"] : ["v1+,v2", traits.versions?.join(",").replace("-", "")]);
      t.strictSame(crd.spec, isUp ? spec : before);
    }
  },
);

await tap.test("upgradeCrd() blames no other client where the migration left storedVersions as it was", async (t) => {
  for (const isFlippedBack of [false, true]) {
    let crd = crdWith();
    // A stand-in: the test is about the words.
    const server = await startServer(t, ({ path }, response) => {
      if (path === "/apis") return sendJson(response, 200, groupList("apiextensions.k8s.io/v1"));
      if (path === CRD_PATH) return sendJson(response, 200, crd);
      const metadata = { resourceVersion: "1" };
      return path.startsWith("/apis/example.com/")
        ? sendJson(response, 200, { kind: "PartialObjectMetadataList", metadata, items: [] })
        : sendStatus(response, 404);
    });
    const { signal } = new AbortController();
    const retrier = new Retrier({ clock: new FakeClock(), random: () => 0.5, maxIdleMs: 5_000 });
    const calls = { client: new ApiClient(server.transport()), retrier, signal };
    const migrate = (): Promise<boolean> => {
      crd = isFlippedBack ? { ...crd, metadata: { ...crd.metadata, generation: 5 } } : crd;
      return Promise.resolve(true);
    };
    const context = { ...calls, checking: calls, isApplied: true, migrate, onStep: () => undefined };
    const expected = isFlippedBack
      ? { code: "StorageVersionChanged", message: /another client has undone the step/ }
      : { code: "PruneFailed", message: /still lists v1.*--manage-stored-versions=false.*--standalone/ };
    await t.rejects(upgradeCrd(context, fileWith(["v2+"])), expected);
  }
});
