import tap from "tap";
import { renderRelease } from "../../src/cli/render/render-release.ts";
import type { ReleaseCheck } from "../../src/plan/release/release-facts.ts";

const UNKNOWN = {
  verdict: "unknown",
  reason: "it has no StorageState",
  stored: ["v1"],
  writes: "v1",
  steps: [],
} as const;
const CHECK: ReleaseCheck = {
  release: "1.36",
  tableOf: "v1.36.3",
  running: "v1.35.4",
  crds: 2,
  items: [
    { name: "pods", verdict: "readable", reason: "it reads all", stored: ["v1"], writes: "v1", steps: [] },
    { name: "secrets", ...UNKNOWN },
    { name: "nodes", ...UNKNOWN },
    {
      name: "hpas.autoscaling",
      verdict: "needs-migration",
      reason: "objects may be stored in autoscaling/v2beta2",
      stored: ["autoscaling/v2beta2", "hash \u001b[2Jx"],
      objects: 7,
      steps: ["rewrite them"],
    },
  ],
  notes: ["a note"],
};

await tap.test("renderRelease() shows what is not readable, and each reason once", (t) => {
  t.equal(
    renderRelease({ ...CHECK, items: CHECK.items.slice(0, 3) }, "table"),
    `NAME      VERDICT   WRITES   MAYBESTORED   OBJECTS
secrets   unknown   v1       v1            -
nodes     unknown   v1       v1            -

secrets, nodes: it has no StorageState

Kubernetes 1.36 (as v1.36.3) reads all objects of 1 of 3 built-in resources; the API server runs v1.35.4
note: a note`,
  );
  t.match(
    renderRelease(CHECK, "table"),
    /\nhpas\.autoscaling: objects may be stored in autoscaling\/v2beta2\n {2}1\. rewrite them\n/,
  );
  t.match(renderRelease({ ...CHECK, items: CHECK.items.slice(0, 1) }, "table"), /^Kubernetes 1\.36 .* 1 of 1 built-in/);
  const many = ["a", "b", "c", "d", "e", "f", "g"].map((name) => ({ name, ...UNKNOWN }));
  t.match(renderRelease({ ...CHECK, items: many }, "table"), /\na, b, c, d, e and 2 more: it has no StorageState\n/);
  t.match(JSON.parse(renderRelease(CHECK, "json")), { kind: "ControlPlaneCheck", ...CHECK });
  t.match(renderRelease(CHECK, "yaml"), /^kind: ControlPlaneCheck\nrelease: "1\.36"\n/m);
  t.end();
});
