// How API servers are asked, on a clock that moves where somebody waits.
import t from "tap";
import { agreement } from "../../src/apiservers/agree.ts";
import { convergeAll, storageVersionHash } from "../../src/apiservers/converge.ts";
import { askEach, identityLeases } from "../../src/apiservers/find.ts";
import { Client } from "../../src/kube/client.ts";
import type { HttpAnswer, HttpRequest } from "../../src/kube/http.ts";
import { type Crd, CRDS, LEASES } from "../../src/kube/objects.ts";
import { runningInTree } from "../../src/migrator/in-tree.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();
const IDENTITIES = `${LEASES}/kube-system/leases`;

const answer = (status: number, body: unknown): HttpAnswer => ({ status, headers: {}, text: JSON.stringify(body) });
const list = (items: readonly unknown[]): HttpAnswer =>
  answer(200, { kind: "List", metadata: { resourceVersion: "1" }, items });
const notFound = (): HttpAnswer => answer(404, { kind: "Status", reason: "NotFound", message: "not found" });
const forbidden = (): HttpAnswer =>
  answer(403, { kind: "Status", reason: "Forbidden", message: 'forbidden: User "a" cannot get path "/x"' });

async function* metrics(started: string): AsyncGenerator<string> {
  yield "# HELP process_start_time_seconds Start time";
  yield `process_start_time_seconds ${started}`;
}

/** API servers that answer by path. Each tells its address as its start time. */
function serve(answerTo: (request: HttpRequest) => HttpAnswer | undefined): {
  readonly client: Client;
  readonly clock: FakeClock;
  readonly paths: string[];
} {
  const clock = new FakeClock();
  const paths: string[] = [];
  const send = async (request: HttpRequest): Promise<HttpAnswer> => {
    paths.push(request.path);
    const found = answerTo(request);
    if (found !== undefined) return found;
    if (request.path !== "/metrics") return notFound();
    return { status: 200, headers: {}, text: "", lines: metrics(request.address) };
  };
  return { client: new Client({ address: "https://a", send, clock, random: () => 0.5 }), clock, paths };
}

await t.test("the first failure ends the questions to the others", async (t) => {
  const { client } = serve(() => undefined);
  let wasAborted = false;
  const ask = (apiServer: Client, asking: AbortSignal): Promise<void> => {
    if (apiServer.address === "https://a") return Promise.reject(new Error("no"));
    return new Promise((_, reject) => {
      asking.addEventListener("abort", () => {
        wasAborted = true;
        reject(asking.reason);
      });
    });
  };
  await t.rejects(askEach(client, { endpoints: ["https://a", "https://b"] }, ask, signal), { message: "no" });
  t.ok(wasAborted);
});

await t.test("one that a user names tells when it started, and no Lease is listed", async (t) => {
  const { client, paths } = serve(() => undefined);
  const { processes } = await askEach(client, { endpoints: ["https://b"] }, async () => undefined, signal);
  t.equal(processes, "https://b");
  t.strictSame([...new Set(paths)], ["/metrics"]);
  await t.rejects(
    askEach(client, { endpoints: [] }, async () => undefined, signal),
    { code: "ApiServerMissing" },
  );
});

await t.test("an API server that has just started refuses for a moment; others refuse for good", async (t) => {
  let refusals = 3;
  const starting = serve(({ path }) => (path === "/metrics" && refusals-- > 0 ? forbidden() : undefined));
  await askEach(starting.client, { endpoints: ["https://b"] }, async () => undefined, signal);
  const refusing = serve(({ path }) => (path === "/metrics" || path === IDENTITIES ? forbidden() : undefined));
  const asked = askEach(refusing.client, { endpoints: ["https://b"] }, async () => undefined, signal);
  await t.rejects(asked, { code: "Forbidden", message: /"\/metrics"/ });
  t.ok(refusing.clock.monotonic() >= 10_000 && refusing.clock.monotonic() < 20_000);
  await t.rejects(identityLeases(refusing.client, {}, signal), { code: "Forbidden", message: /list Leases/ });
});

await t.test("a thousand CRDs are one list and one discovery document of each version", async (t) => {
  const crds = Array.from({ length: 1_000 }, (_, n): Crd => {
    const names = { plural: `p${n}`, kind: `K${n}` };
    const versions = [{ name: "v1", served: true, storage: true }];
    const metadata = { name: `p${n}.example.com`, uid: `u${n}`, resourceVersion: "1", generation: 2 };
    return { metadata, spec: { group: "example.com", names, scope: "Namespaced", versions } };
  });
  let behind = 2;
  const { client, paths } = serve(({ path, query }) => {
    const shown = crds.filter(({ metadata }) => query["fieldSelector"]?.endsWith(metadata.name) ?? true);
    if (path === "/apis/example.com/v1") {
      const hash = (kind: string): string => storageVersionHash("example.com", "v1", kind);
      const entry = ({ spec: { names } }: Crd): object => ({
        name: names.plural,
        kind: names.kind,
        storageVersionHash: hash(names.kind),
      });
      return answer(200, { resources: crds.map(entry) });
    }
    if (path !== CRDS) return undefined;
    const isBehind = query["resourceVersion"] === "0" && behind-- > 0;
    const cached = ({ metadata }: Crd): object => ({
      metadata: { ...metadata, generation: isBehind && metadata.name.startsWith("p7.") ? 1 : 2 },
    });
    return list(shown.map(cached));
  });
  await convergeAll(client, { endpoints: ["https://b"] }, crds, { signal, forMs: 30_000 });
  t.ok(paths.length < 20, `${paths.length} requests`);
  t.equal(behind, -1);
});

await t.test("API servers that a user names agree without a right to list Leases", async (t) => {
  const path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
  const entry = { name: "deployments", kind: "Deployment", verbs: ["list"], storageVersionHash: "" };
  const hash = storageVersionHash("apps", "v1", "Deployment");
  const encoded = { apiServerID: "one", encodingVersion: "apps/v1" };
  const { client } = serve((request) => {
    if (request.path === IDENTITIES) return forbidden();
    if (request.path === path) {
      return list([{ metadata: { name: "apps.deployments" }, status: { storageVersions: [encoded] } }]);
    }
    return request.path === "/apis/apps/v1"
      ? answer(200, { resources: [{ ...entry, storageVersionHash: hash }] })
      : undefined;
  });
  const { agreed } = await agreement(client, { endpoints: ["https://b"] }, [{ group: "apps", version: "v1" }], signal);
  t.match(agreed.get("deployments.apps"), { hash });
});

await t.test("a migration of Kubernetes that runs is waited for, and none that nobody has begun", async (t) => {
  const migration = (name: string, type?: string): object => ({
    metadata: { name },
    spec: { resource: { group: "apps", resource: "deployments" } },
    status: { conditions: type === undefined ? null : [{ type, status: "True" }] },
  });
  const running = async (...items: readonly object[]): Promise<unknown> => {
    const { client } = serve(({ path }) => (path.includes("/v1beta1/") ? list(items) : undefined));
    return runningInTree(client, { group: "apps", plural: "deployments" }, signal);
  };
  t.equal(await running(), undefined);
  t.equal(await running(migration("waiting"), migration("done", "Succeeded")), undefined);
  t.match(await running(migration("theirs", "Running")), { name: "InTreeRunning", message: /"theirs"/ });
});
