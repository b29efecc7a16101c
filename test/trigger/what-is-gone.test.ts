import tap from "tap";
import { goneBy } from "../../src/trigger/what-is-gone.ts";
import { builtIn, crd } from "./situation.ts";

await tap.test("goneBy() calls no resource gone that an API server may serve", async (t) => {
  const isGone = goneBy({
    observed: [builtIn("A")],
    leftOut: [{ name: "events", reason: "shared", isShared: true, isOptedOut: false }],
    unavailable: [{ group: "down.example.com", version: "v1", reason: "503", isMissing: false, server: "s" }],
    crds: new Map([["widgets.example.com", crd(["v1"])]]),
  });
  for (const name of ["deployments.apps", "events", "widgets.example.com", "ghosts.down.example.com"]) {
    t.equal(isGone(name), false, name);
  }
  t.equal(isGone("gone.example.com"), true);
  t.equal(isGone("pods"), true);
});
