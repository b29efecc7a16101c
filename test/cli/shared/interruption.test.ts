import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import tap from "tap";
import { kubeconfigFor } from "../../kube/local-server.ts";
import { startKsvm } from "../../processes/program.ts";

const PLUGIN = `
import { writeFileSync } from "node:fs";
writeFileSync(process.argv[2], "");
setInterval(() => undefined, 1_000);
`;

await tap.test("main.ts ends on SIGINT, though the exec plugin hangs", async (t) => {
  const folder = t.testdir({ "plugin.mjs": PLUGIN });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(folder, "plugin.mjs"), join(folder, "runs")],
    interactiveMode: "Never",
  };
  const path = join(folder, "config");
  writeFileSync(path, kubeconfigFor("https://192.0.2.1:6443", { exec }));
  const run = startKsvm(t, ["plan", "--kubeconfig", path]);
  while (!existsSync(join(folder, "runs"))) await delay(20);
  run.signal("SIGINT");
  // The plugin never ends by itself.
  t.match(await run.ended, { code: 130 });
});
