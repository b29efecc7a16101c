import { join } from "node:path";
import { KubeConfig } from "@kubernetes/client-node";
import tap from "tap";
import { withCluster } from "../../src/library/cluster.ts";
import { sendJson, startServer } from "../kube/local-server.ts";

/** Prints what a variable holds as the token. */
const PLUGIN = `
console.log(JSON.stringify({
  apiVersion: "client.authentication.k8s.io/v1",
  kind: "ExecCredential",
  status: { token: process.env.PROFILE },
}));
`;

await tap.test("withCluster() has the exec plugin of a KubeConfig run in the environment of each call", async (t) => {
  const server = await startServer(t, (_request, response) =>
    sendJson(response, 200, { major: "1", minor: "36", gitVersion: "v1.36.0" }),
  );
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(t.testdir({ "plugin.mjs": PLUGIN }), "plugin.mjs")],
    interactiveMode: "Never",
  };
  const kubeConfig = new KubeConfig();
  kubeConfig.loadFromOptions({
    clusters: [{ name: "one", server: server.url, skipTLSVerify: true }],
    users: [{ name: "jane", exec }],
    contexts: [{ name: "one", cluster: "one", user: "jane" }],
    currentContext: "one",
  });
  for (const profile of ["work", "other"]) {
    await withCluster({ kubeConfig, environment: { ...process.env, PROFILE: profile } }, () => Promise.resolve());
  }
  const used = server.seen.map(({ headers }) => headers.authorization);
  t.same([...new Set(used)], ["Bearer work", "Bearer other"]);
});
