// Builds what the tests run against ahead of time: node test/control-plane/build.ts [name…]
import { type BinaryName, ensureBinaries } from "./binaries.ts";

const known: readonly BinaryName[] = ["etcd", "kubectl", "kube-apiserver", "kube-controller-manager"];
const asked = process.argv.slice(2);
const unknown = asked.filter((name) => !(known as readonly string[]).includes(name));

try {
  if (unknown.length > 0) throw new Error(`Cannot build "${unknown.join(" ")}": choose from ${known.join(", ")}`);
  const names = asked.length > 0 ? known.filter((name) => asked.includes(name)) : known;
  for (const path of Object.values(await ensureBinaries(names))) console.log(path);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
