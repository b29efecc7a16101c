import { writeFileSync } from "node:fs";
import { join } from "node:path";

import tap from "tap";

import { KsvmError } from "../../src/errors.ts";
import { loadKubeConfig, withServer } from "../../src/kube/config.ts";
import { configFor, kubeconfigFor } from "./local-server.ts";

const SERVER = "https://10.0.0.1:6443";

function errorOf(run: () => unknown): KsvmError {
  try {
    run();
  } catch (error) {
    if (error instanceof KsvmError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

await tap.test("loadKubeConfig() takes the current context when none is named", (t) => {
  const path = join(t.testdir({ config: kubeconfigFor(SERVER) }), "config");
  t.equal(loadKubeConfig({ kubeconfig: path }).getCurrentCluster()?.server, SERVER);
  t.equal(loadKubeConfig({ kubeconfig: path, context: "local" }).getCurrentContext(), "local");
  t.end();
});

await tap.test("loadKubeConfig() goes by KUBECONFIG when no file is named", (t) => {
  const path = join(t.testdir({ config: kubeconfigFor(SERVER) }), "config");
  const before = process.env["KUBECONFIG"];
  t.teardown(() => {
    if (before === undefined) delete process.env["KUBECONFIG"];
    else process.env["KUBECONFIG"] = before;
  });
  process.env["KUBECONFIG"] = path;
  t.equal(loadKubeConfig().getCurrentCluster()?.server, SERVER);
  process.env["KUBECONFIG"] = `${path}-missing`;
  t.equal(errorOf(() => loadKubeConfig()).code, "KubeconfigInvalid");
  t.end();
});

const unusable: readonly [name: string, text: string, words: RegExp][] = [
  ["is not YAML", "clusters: [", /^Cannot load kubeconfig/],
  ["is empty", "", /^Cannot (load|use) kubeconfig/],
  ["has no contexts", "clusters: []\nusers: []\ncontexts: []\n", /names no cluster; choose one with --context/],
  ["has no current context", kubeconfigFor(SERVER).replace(/^current-context.*$/m, ""), /names no cluster/],
  ["names a server that is no URL", kubeconfigFor("10.0.0.1"), /server "10.0.0.1" is not a URL/],
];

for (const [name, text, words] of unusable) {
  await tap.test(`loadKubeConfig() throws KubeconfigInvalid when the file ${name}`, (t) => {
    const path = join(t.testdir(), "config");
    writeFileSync(path, text);
    const error = errorOf(() => loadKubeConfig({ kubeconfig: path }));
    t.equal(error.code, "KubeconfigInvalid");
    t.match(error.message, words);
    t.match(error.message, path);
    t.end();
  });
}

await tap.test("loadKubeConfig() throws KubeconfigInvalid when the file does not exist", (t) => {
  const path = join(t.testdir(), "missing");
  const error = errorOf(() => loadKubeConfig({ kubeconfig: path }));
  t.equal(error.code, "KubeconfigInvalid");
  t.match(error.message, `Cannot load kubeconfig "${path}": ENOENT`);
  t.end();
});

await tap.test("loadKubeConfig() names the contexts there are when the one asked for is not among them", (t) => {
  const path = join(t.testdir({ config: kubeconfigFor(SERVER) }), "config");
  const error = errorOf(() => loadKubeConfig({ kubeconfig: path, context: "prod" }));
  t.equal(error.code, "KubeconfigInvalid");
  t.equal(error.message, `Cannot use context "prod": kubeconfig "${path}" has "local"`);
  t.end();
});

await tap.test(
  "withServer() keeps the credentials and checks the certificate for the name that all servers share",
  (t) => {
    const config = configFor(kubeconfigFor(SERVER, { token: "secret" }));
    const other = withServer(config, "https://10.0.0.2:6443");
    t.match(other.getCurrentCluster(), { server: "https://10.0.0.2:6443", tlsServerName: "kubernetes.default.svc" });
    t.equal(other.getCurrentUser()?.token, "secret");
    t.equal(config.getCurrentCluster()?.server, SERVER, "the original is left as it is");
    t.end();
  },
);

await tap.test("withServer() checks the certificate for the host itself when only the port is another", (t) => {
  const other = withServer(configFor(kubeconfigFor(SERVER)), "https://10.0.0.1:7443");
  t.equal(other.getCurrentCluster()?.server, "https://10.0.0.1:7443");
  t.equal(other.getCurrentCluster()?.tlsServerName, undefined);
  t.end();
});

await tap.test("withServer() throws KubeconfigInvalid when there is no current context", (t) => {
  const config = configFor(kubeconfigFor(SERVER));
  config.setCurrentContext("none");
  t.equal(errorOf(() => withServer(config, SERVER)).code, "KubeconfigInvalid");
  t.end();
});
