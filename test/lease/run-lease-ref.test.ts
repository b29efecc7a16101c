import tap from "tap";
import { runLeaseOf } from "../../src/lease/run-lease-ref.ts";
import { leaseNameOf } from "../../src/lease/lease-acquire.ts";

const CRD = "widgets.example.com";
const name = leaseNameOf(CRD);
const ownerOf = (lease: string) => ({ lease, identity: "host_1", since: "2026-01-01T00:00:00Z" });

await tap.test("runLeaseOf() takes the Lease of a run of this installation, and of a command-line run", (t) => {
  t.same(runLeaseOf(CRD, ownerOf(`ours/${name}`), "ours"), { namespace: "ours", name });
  t.same(runLeaseOf(CRD, ownerOf(`kube-system/${name}`), "ours"), { namespace: "kube-system", name });
  t.end();
});

await tap.test("runLeaseOf() does not trust an annotation that names", (t) => {
  const forged = {
    "the leader's own Lease": "ours/ksvm-controller",
    "the Lease of a part of Kubernetes": "kube-system/kube-controller-manager",
    "the Lease of a run on another CRD": `ours/${leaseNameOf("gadgets.example.com")}`,
    "another namespace": `theirs/${name}`,
    "no namespace": name,
    "an empty namespace": `/${name}`,
    "more than a namespace": `ours/${name}/x`,
    nothing: "",
  };
  for (const [title, lease] of Object.entries(forged)) {
    t.equal(runLeaseOf(CRD, ownerOf(lease), "ours"), undefined, title);
  }
  t.end();
});
