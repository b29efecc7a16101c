import tap from "tap";
import { type StorageVersionFacts, hashOfEncoding } from "../../src/old/apiservers/storage-version-facts.ts";
import type { Observation } from "../../src/trigger/observer.ts";
import {
  type DiscoveredResource,
  type ServerDiscovery,
  type SurveyContext,
  surveyOf,
} from "../../src/trigger/survey.ts";
import { goneBy, orphansBy } from "../../src/trigger/what-is-gone.ts";
import { builtIn, crd, state } from "./situation.ts";

const CONTEXT: SurveyContext = { crds: new Map(), storageVersions: new Map(), excludedGroups: [] };

function entry(resource: string, hash: string, more: Partial<DiscoveredResource> = {}): DiscoveredResource {
  return { group: "apps", version: "v1", resource, kind: "Deployment", verbs: ["list", "patch"], hash, ...more };
}

function server(resources: readonly DiscoveredResource[], more: Partial<ServerDiscovery> = {}): ServerDiscovery {
  return { server: "https://a", resources, unavailable: [], ...more };
}

function widgets(hash: string): ServerDiscovery {
  return server([entry("widgets", hash, { group: "example.com", version: "v1beta1" })]);
}

await tap.test("surveyOf() names what it leaves out, and why", async (t) => {
  const resources = [
    entry("deployments", "A"),
    entry("deployments/scale", "A"),
    entry("reviews", "A", { verbs: ["create"] }),
    entry("opaque", ""),
    entry("events", "E", { group: "events.k8s.io" }),
    entry("events", "E", { group: "" }),
    entry("jobs", "J", { group: "batch" }),
    entry("widgets", "#v1", { group: "example.com" }),
  ];
  const crds = new Map([["widgets.example.com", crd(["v1"], { isOptedOut: true })]]);
  const { leftOut, observed } = surveyOf([server(resources)], { ...CONTEXT, crds, excludedGroups: ["batch"] });
  t.same(new Set(observed.map(({ name }) => name)), new Set(["events", "deployments.apps"]));
  t.same(
    new Map(leftOut.map(({ name, reason }) => [name, reason])),
    new Map([
      ["deployments/scale.apps", "it is a subresource, which is not stored"],
      ["reviews.apps", "it cannot be listed and patched"],
      ["opaque.apps", "it has no storageVersionHash: it cannot be told how it is stored"],
      ["events.events.k8s.io", 'its objects are those of "events"'],
      ["jobs.batch", "its group is excluded"],
      ["widgets.example.com", "its CRD turns the trigger off"],
    ]),
  );
});

await tap.test(
  "surveyOf() leaves out what is not among the only resources to migrate, as if it were switched off",
  async (t) => {
    const resources = [
      entry("deployments", "A"),
      entry("jobs", "J", { group: "batch" }),
      entry("secrets", "S", { group: "" }),
    ];
    const onlyResources = ["deployments.apps", "secrets"];
    const { leftOut, observed } = surveyOf([server(resources)], { ...CONTEXT, onlyResources });
    t.same(new Set(observed.map(({ name }) => name)), new Set(onlyResources));
    const reason = "it is not among the only resources to migrate";
    t.same(leftOut, [{ name: "jobs.batch", reason, isShared: false, isOptedOut: true }]);
  },
);

await tap.test("surveyOf() never leaves a resource out for one of an aggregated API server", async (t) => {
  const own = entry("deployments", "A");
  for (const group of ["aggregated.example.com", "zzz.example.com"]) {
    // An aggregated API server may show any plural and hash.
    const ofAnother = entry("deployments", "A", { group });
    for (const resources of [
      [own, ofAnother],
      [ofAnother, own],
    ]) {
      const { leftOut, observed } = surveyOf([server(resources)], CONTEXT);
      t.same(new Set(observed.map(({ name }) => name)), new Set(["deployments.apps", `deployments.${group}`]));
      t.same(leftOut, []);
    }
  }
});

await tap.test("surveyOf() takes a version that only a newer API server serves for what it is", async (t) => {
  // In the middle of an upgrade: the older one lists v1, because both list what either serves, and answers 404.
  const missing = { group: "apps", version: "v1", reason: "404", isMissing: true };
  const older = server([entry("deployments", "old", { version: "v1beta1" })], { unavailable: [missing] });
  const newer = server([entry("deployments", "new"), entry("deployments", "new", { version: "v1beta1" })]);
  const { observed, unavailable } = surveyOf([older, newer], CONTEXT);
  t.same(unavailable, []);
  t.same(new Set(observed[0]?.hashes), new Set(["old", "new"]));
  t.equal(observed[0]?.agreed, undefined);
  t.equal(observed[0]?.version, "v1beta1", "objects are rewritten in a version that both serve");
  t.same(surveyOf([older, older], CONTEXT).observed, [], "nobody shows it: its handler may not be ready yet");
});

await tap.test("surveyOf() says nothing of a group that one API server does not show", async (t) => {
  const hidden = { group: "apps", version: "v1", reason: "down", isMissing: false };
  const { observed, leftOut, unavailable } = surveyOf(
    [
      server([entry("deployments", "A"), entry("jobs", "J", { group: "batch" })]),
      server([entry("jobs", "J", { group: "batch" })], { server: "https://b", unavailable: [hidden] }),
    ],
    CONTEXT,
  );
  t.same(
    observed.map(({ name, agreed }) => [name, agreed]),
    [["jobs.batch", "J"]],
  );
  t.same(leftOut, []);
  t.same(unavailable, [{ ...hidden, server: "https://b" }]);
});

await tap.test("surveyOf() wants all API servers to encode alike", async (t) => {
  const [one] = surveyOf([server([entry("deployments", "B")]), server([entry("deployments", "A")])], CONTEXT).observed;
  t.same(one?.hashes, ["A", "B"]);
  t.equal(one?.agreed, undefined);
  t.match(one?.disagreement, /"A" and "B"/);
  const [missing] = surveyOf([server([entry("deployments", "B")]), server([])], CONTEXT).observed;
  t.match(missing, { hashes: ["B"], disagreement: "not every API server serves it" });
  const [silent] = surveyOf(
    [server([entry("deployments", "B")]), server([entry("deployments", "")])],
    CONTEXT,
  ).observed;
  t.match(silent?.disagreement, /not every API server shows a storageVersionHash/);
});

await tap.test("surveyOf() asks for a version that all API servers serve", async (t) => {
  const old = server([entry("deployments", "A", { version: "v1beta1" }), entry("deployments", "A", { version: "v1" })]);
  const [one] = surveyOf([old, server([entry("deployments", "A")])], CONTEXT).observed;
  t.equal(one?.version, "v1");
});

await tap.test("surveyOf() believes the CRD where discovery has no hash or an old one", async (t) => {
  const unserved = crd(["v1"], { isStorageServed: false, requestVersion: "v1beta1" });
  const context = { ...CONTEXT, crds: new Map([["widgets.example.com", unserved]]) };
  const [one] = surveyOf([widgets("")], context).observed;
  t.match(one, { agreed: "#v1", version: "v1beta1" });
  t.match(surveyOf([widgets("#v2")], context).observed[0]?.disagreement, /has not followed its CRD/);
  const served = { ...CONTEXT, crds: new Map([["widgets.example.com", crd(["v1"])]]) };
  const [behind] = surveyOf([widgets("#v0")], served).observed;
  t.same(behind?.hashes, ["#v0", "#v1"]);
  t.match(behind?.disagreement, /discovery shows "#v0", and "#v1" is its CRD's storage version/);
});

await tap.test(
  "surveyOf() believes a StorageVersion of live API servers that says that all encode alike",
  async (t) => {
    const hash = hashOfEncoding("apps/v1", "Deployment");
    const entries = ["a", "b"].map((name) => ({ server: name, encodingVersion: "apps/v1" }));
    const look = (storageVersion: StorageVersionFacts, identities?: readonly string[]) => {
      const context = { ...CONTEXT, identities, storageVersions: new Map([["deployments.apps", storageVersion]]) };
      return surveyOf([server([entry("deployments", hash)])], context).observed[0];
    };
    const equal = { key: "uid/1", common: "apps/v1", entries };
    t.match(look(equal, ["a", "b"]), { agreed: hash, storageVersion: "uid/1" });
    t.match(look(equal, ["a"])?.disagreement, /an entry of b, which has no live identity Lease/);
    t.match(look(equal, ["a", "b", "c"])?.disagreement, /no entry of c/);
    t.equal(look(equal)?.agreed, hash, "without Leases nobody can tell who lives");
    t.match(look({ key: "uid/2", entries }, ["a", "b"])?.disagreement, /no commonEncodingVersion/);
    const older = { key: "uid/3", entries: [{ server: "a", encodingVersion: "apps/v1beta2" }] };
    t.same(look(older)?.hashes, [hash, hashOfEncoding("apps/v1beta2", "Deployment")].toSorted());
    t.equal(look(older)?.agreed, undefined);
  },
);

const OBSERVATION: Observation = {
  observed: [builtIn("A")],
  leftOut: [{ name: "events", reason: "shared", isShared: true, isOptedOut: false }],
  unavailable: [{ group: "down.example.com", version: "v1", reason: "503", isMissing: false, server: "s" }],
  crds: new Map([["widgets.example.com", crd(["v1"])]]),
};

await tap.test("goneBy() calls no resource gone that an API server may serve", async (t) => {
  const isGone = goneBy(OBSERVATION);
  for (const name of ["deployments.apps", "events", "widgets.example.com", "ghosts.down.example.com"]) {
    t.equal(isGone(name), false, name);
  }
  t.equal(isGone("gone.example.com"), true);
  t.equal(isGone("pods"), true);
});

await tap.test("orphansBy() finds a StorageState without a record whose CRD is gone, and no other", async (t) => {
  const isOrphan = orphansBy(OBSERVATION);
  const lost = state(["#v1"], "#v1");
  t.equal(isOrphan("gone.example.com", lost), true);
  t.equal(isOrphan("gone.example.com", { ...lost, isOurs: false }), false, "another client made it");
  for (const name of ["widgets.example.com", "deployments.apps", "ghosts.down.example.com", "events"]) {
    t.equal(isOrphan(name, lost), false, name);
  }
  for (const name of ["podsecuritypolicies.policy", "flowschemas.flowcontrol.apiserver.k8s.io", "componentstatuses"]) {
    t.equal(isOrphan(name, lost), false, `${name} may have objects in etcd`);
  }
  const recorded = { ...lost, crd: { uid: "u", generation: 1, storedVersions: ["v1"] } };
  t.equal(isOrphan("gone.example.com", { ...recorded, isOurs: false }), true);
  t.equal(isOrphan("widgets.example.com", recorded), false);
});
