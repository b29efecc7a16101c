import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { ALLOW_PRUNE_ANNOTATION } from "../../src/api/names.ts";
import { isPruneAllowanceSpent, parsePruneAllowance } from "../../src/api/prune-allowance.ts";

await tap.test("parsePruneAllowance() reads versions and a generation, and nothing else", async (t) => {
  t.same(parsePruneAllowance("v1alpha1@7"), { versions: ["v1alpha1"], generation: "7" });
  t.same(parsePruneAllowance("v1alpha1,v1beta1@12"), { versions: ["v1alpha1", "v1beta1"], generation: "12" });
  for (const value of ["", "v1alpha1", "@7", "v1alpha1@", "v1alpha1@x", "v1@7@8", "v1@-1", "v1@7 "]) {
    t.equal(parsePruneAllowance(value), undefined, JSON.stringify(value));
  }
});

await tap.test("isPruneAllowanceSpent() keeps what can still allow something", async (t) => {
  t.equal(isPruneAllowanceSpent(crd(undefined)), false, "no annotation");
  t.equal(isPruneAllowanceSpent(crd("v1alpha1@3")), false);
  t.equal(isPruneAllowanceSpent(crd("v1alpha1,v1beta1@3")), false, "one of them has not left");
  t.equal(isPruneAllowanceSpent(crd("v1beta1@3")), true, "it has left");
  t.equal(isPruneAllowanceSpent(crd("v1alpha1@2")), true, "another generation");
  t.equal(isPruneAllowanceSpent(crd("anything")), true, "it allows nothing");
});

function crd(value: string | undefined): CustomResourceDefinition {
  const annotations = value === undefined ? {} : { [ALLOW_PRUNE_ANNOTATION]: value };
  const metadata = { name: "widgets.example.com", generation: 3, annotations };
  return { metadata, status: { storedVersions: ["v1alpha1", "v1"] } } as unknown as CustomResourceDefinition;
}
