import t from "tap";
import { Cluster } from "./cluster.ts";
import { TestKind } from "./crd-fixture.ts";
import { accountFor } from "./rbac-account.ts";

const cluster = await Cluster.start(t);

/** Without the places where a name may be broken. */
function textOf(page: string): string {
  return page.replaceAll("<wbr>", "");
}

await t.test("ksvm report works under exactly the role that ksvm rbac --for report prints", async (t) => {
  const [named, other] = [new TestKind("named"), new TestKind("other")];
  await cluster.createStale(named, 3);
  await cluster.createStale(other, 2);
  const before = await cluster.crd(named);
  const kubeconfig = await accountFor(cluster, "reporter", [named.name, "configmaps", "--for", "report"]);

  const run = await cluster.ksvm(["report", named.name, "configmaps", "--kubeconfig", kubeconfig]);
  t.match(run, { code: 0, stderr: "" });
  const page = textOf(run.stdout);
  t.match(page, named.name);
  t.match(page, "configmaps");
  t.notMatch(page, /forbidden/i, "it may see all that the report is about");
  t.strictSame(await cluster.crd(named), before);

  const denied = await cluster.ksvm(["report", other.name, "--kubeconfig", kubeconfig]);
  t.match(denied, { code: 1, stdout: "" });
  t.match(denied.stderr, /forbidden|may not/i, "another CRD is out of its reach");

  const everything = await accountFor(cluster, "everything", ["--all", "--for", "report"]);
  const all = await cluster.ksvm(["report", "--kubeconfig", everything]);
  t.match(all, { code: 0, stderr: "" });
  t.match(textOf(all.stdout), named.name);
  t.match(textOf(all.stdout), other.name);
  t.notMatch(all.stdout, /forbidden/i);
});

await t.test("the roles of each purpose have a name of their own", async (t) => {
  for (const [purpose, name] of [
    ["runs", "ksvm-migrate"],
    ["check", "ksvm-check"],
    ["report", "ksvm-report"],
  ] as const) {
    const { stdout } = await cluster.ksvm(["rbac", "widgets.example.com", "--for", purpose]);
    t.match(stdout, new RegExp(`^  name: ${name}$`, "m"));
  }
});
