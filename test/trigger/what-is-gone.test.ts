import tap from "tap";
import type { Observation } from "../../src/trigger/observer.ts";
import { goneBy, orphansBy } from "../../src/trigger/what-is-gone.ts";
import { builtIn, crd, state } from "./situation.ts";

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
