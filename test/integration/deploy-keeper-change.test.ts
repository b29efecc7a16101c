import { readFileSync } from "node:fs";
import { join } from "node:path";
import t from "tap";
import { Cluster } from "./cluster.ts";
import { shellOf } from "./transcript.ts";

const INSTALL = readFileSync(join(import.meta.dirname, "../../docs/install.md"), "utf8");
const LABEL = "-l app.kubernetes.io/component=certificates";
const NAMESPACED = `kubectl get --all-namespaces cronjob,role,rolebinding,serviceaccount ${LABEL} -o name`;
const CLUSTER_WIDE = `kubectl get clusterrole,clusterrolebinding ${LABEL} -o name`;

/** The commands that docs/install.md shows under a heading. */
function commandsUnder(heading: string): readonly string[] {
  const section = INSTALL.split(/^### /m).find((text) => text.startsWith(`${heading}\n`)) ?? "";
  const [, block = ""] = /```sh\n([^]*?)```/.exec(section) ?? [];
  return block.trim().split("\n");
}

const cluster = await Cluster.start(t);
const shell = await shellOf(t, cluster);

async function run(command: string): Promise<string> {
  const { code, stdout } = await shell(command);
  t.equal(code, 0, `${command}: ${stdout}`);
  return stdout;
}

await t.test("after a change of who keeps the certificates, docs/install.md deletes what kept them", async (t) => {
  await run("kubectl apply --server-side -k deploy/base");
  await run(
    "kubectl create secret generic ksvm-webhook-certificates -n kube-storage-migration --dry-run=client -o yaml | kubectl apply --server-side --force-conflicts -f -",
  );
  await run("kubectl apply --server-side -k deploy/overlays/files");
  const left = `${await run(NAMESPACED)}${await run(CLUSTER_WIDE)}`;
  for (const kind of ["cronjob", "role", "rolebinding", "serviceaccount", "clusterrole", "clusterrolebinding"]) {
    t.match(left, new RegExp(`^${kind}[./]`, "m"), `kubectl apply leaves the ${kind}`);
  }
  t.match(left, "storage-migrator-certificates-identities", "in kube-system");
  t.match(left, "storage-migrator-certificates-endpoints", "in default");
  const commands = commandsUnder("Another keeper for an installation");
  t.equal(commands.length, 5);
  for (const command of commands) await run(command);
  t.equal(`${await run(NAMESPACED)}${await run(CLUSTER_WIDE)}`, "");
  t.match(await run("kubectl get deployment -n kube-storage-migration -o name"), "deployment.apps/ksvm-controller");
});
