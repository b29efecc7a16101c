// What two API servers show of the resources that have no CRD.
import t from "tap";
import { Client } from "../../src/kube/client.ts";
import type { HttpAnswer, HttpRequest } from "../../src/kube/http.ts";
import { observeBuiltIns } from "../../src/trigger/observe.ts";
import { FakeClock } from "../fake-clock.ts";

const { signal } = new AbortController();

interface Entry {
  readonly name: string;
  readonly verbs?: readonly string[];
  readonly hash?: string;
}

const CORE: readonly Entry[] = [
  { name: "secrets", hash: "S" },
  { name: "events", hash: "E" },
  { name: "pods/status", hash: "P" },
  { name: "bindings", verbs: ["create"] },
];
const APPS: readonly Entry[] = [
  { name: "deployments", hash: "A" },
  { name: "statefulsets", hash: "C" },
  { name: "replicasets", hash: "R" },
];
const VERSIONS: Readonly<Record<string, readonly Entry[]>> = {
  "/api/v1": CORE,
  "/apis/apps/v1": APPS,
  "/apis/batch/v1": [{ name: "jobs", hash: "J" }],
  "/apis/events.k8s.io/v1": [{ name: "events", hash: "E" }],
  "/apis/example.com/v1": [{ name: "widgets", hash: "W" }],
  "/apis/internal.apiserver.k8s.io/v1alpha1": [],
};
/** The second one is of another release. */
const OF_OTHER: typeof VERSIONS = {
  ...VERSIONS,
  "/apis/apps/v1": [
    { name: "deployments", hash: "B" },
    { name: "statefulsets", hash: "C" },
  ],
};
const GROUPS = ["apps", "batch", "events.k8s.io", "example.com", "down.example.com"];

function bodyOf({ address, path }: HttpRequest): unknown {
  if (path === "/apis") {
    const groups = GROUPS.map((name) => ({
      name,
      preferredVersion: { version: "v1" },
      versions: [{ version: "v1" }],
    }));
    return { kind: "APIGroupList", groups };
  }
  if (path.endsWith("/storageversions")) {
    const storageVersions = ["apps/v1", "apps/v1beta2"].map((encodingVersion, at) => ({
      apiServerID: `server-${at}`,
      encodingVersion,
    }));
    const item = { metadata: { name: "apps.statefulsets" }, status: { storageVersions } };
    return { kind: "List", metadata: {}, items: [item] };
  }
  const entries = (address === "https://b" ? OF_OTHER : VERSIONS)[path];
  if (entries === undefined) return undefined;
  const resources = entries.map(({ hash, name, verbs = ["list", "patch"] }) => ({
    name,
    kind: "Kind",
    namespaced: true,
    verbs,
    ...(hash === undefined ? {} : { storageVersionHash: hash }),
  }));
  return { kind: "APIResourceList", resources };
}

async function* metrics(started: string): AsyncGenerator<string> {
  yield `process_start_time_seconds ${started}`;
}

async function send(request: HttpRequest): Promise<HttpAnswer> {
  if (request.path === "/metrics") {
    return { status: 200, headers: {}, text: "", lines: metrics(request.address) };
  }
  const body = bodyOf(request);
  const status = body === undefined ? 503 : 200;
  return { status, headers: {}, text: JSON.stringify(body ?? { kind: "Status", message: "down" }) };
}

const client = new Client({ address: "https://a", send, clock: new FakeClock(), random: () => 0.5 });
const found = await observeBuiltIns(
  client,
  { endpoints: ["https://a", "https://b"] },
  { isCrd: (name) => name === "widgets.example.com", isWanted: (name) => name !== "jobs.batch" },
  signal,
);

await t.test("a resource is stored as all API servers agree, or in any of the ways that they show", async (t) => {
  const byName = new Map(found.observed.map((one) => [one.name, one]));
  t.same(new Set(byName.keys()), new Set(["secrets", "events", ...APPS.map(({ name }) => `${name}.apps`)]));
  t.match(byName.get("secrets"), { group: "", version: "v1", resource: "secrets", hashes: ["S"], agreed: "S" });
  t.same(byName.get("deployments.apps")?.hashes, ["A", "B"]);
  t.match(byName.get("deployments.apps")?.disagreement, /"A".*"B"/);
  t.same(byName.get("replicasets.apps")?.hashes, ["R"], "the other one does not write it");
  t.same(byName.get("statefulsets.apps")?.hashes, ["C", "Unknown"], "its StorageVersion speaks of another version");
  for (const name of ["deployments", "replicasets", "statefulsets"]) {
    t.equal(byName.get(`${name}.apps`)?.agreed, undefined, name);
  }
});

await t.test("what is left out has a reason", async (t) => {
  t.match(Object.fromEntries(found.leftOut.map(({ reason, resource }) => [resource, reason])), {
    "pods/status": "is a subresource",
    bindings: /does not offer list and patch/,
    "events.events.k8s.io": 'shares its storage with "events"',
    "jobs.batch": /excluded/,
  });
});

await t.test("nothing is gone of a group that cannot be read", async (t) => {
  t.match(found.unavailable, [{ group: "down.example.com", groupVersion: "down.example.com/v1", reason: /down/ }]);
  for (const name of ["secrets", "jobs.batch", "widgets.example.com", "ghosts.down.example.com"]) {
    t.equal(found.isGone(name), false, name);
  }
  t.equal(found.isGone("gone.example.com"), true);
  t.equal(found.isGone("podsecuritypolicies.policy"), true);
});
