import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import tap from "tap";
import { endWithThisProcess } from "../../control-plane/watchdog.ts";
import { kubeconfigFor } from "../../kube/local-server.ts";

const MAIN = fileURLToPath(new URL("../../../src/cli/main.ts", import.meta.url));

function start(kubeconfig: string) {
  const child = spawn(process.execPath, [MAIN, "plan", "--kubeconfig", kubeconfig], { stdio: "ignore" });
  endWithThisProcess(child);
  return { child, ended: once(child, "exit").then(([code]: unknown[]) => code) };
}

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
  const { child, ended } = start(path);
  while (!existsSync(join(folder, "runs"))) await delay(20);
  child.kill("SIGINT");
  // The plugin never ends by itself.
  t.equal(await ended, 130);
});
