import { readFileSync } from "node:fs";
import { join } from "node:path";

import { KubeConfig } from "@kubernetes/client-node";
import tap from "tap";

import { ClusterConfig } from "../../../../src/old/kube/connect/cluster-config.ts";
import { Transport } from "../../../../src/old/kube/transport.ts";
import { FakeClock } from "../../../fake-clock.ts";
import { configFor, kubeconfigFor, type LocalServer, sendJson, sendStatus, startServer } from "../local-server.ts";

const GET = { method: "GET", path: "/x" } as const;

/** Prints `token-N` for its Nth run, and until when it is valid. */
const PLUGIN = `
import { appendFileSync, readFileSync } from "node:fs";
const [log, expirationTimestamp] = process.argv.slice(2);
appendFileSync(log, "x");
console.log(JSON.stringify({
  apiVersion: "client.authentication.k8s.io/v1",
  kind: "ExecCredential",
  status: { token: "token-" + readFileSync(log, "utf8").length, expirationTimestamp },
}));
`;

type Tap = Parameters<typeof startServer>[0] & { testdir(content?: Record<string, string>): string };

/** A server that takes any bearer token but `bad`, and a transport for a user of its kubeconfig. */
async function connect(
  t: Tap,
  user: Readonly<Record<string, unknown>>,
  clock: FakeClock,
): Promise<LocalServer & { readonly client: Transport; tokens(): readonly (string | undefined)[] }> {
  // Local, to see the credentials that were sent; a real API server would need an OIDC issuer.
  const server = await startServer(t, ({ headers }, response) =>
    /^Bearer (?!bad)./.test(headers.authorization ?? "") ? sendJson(response, 200, {}) : sendStatus(response, 401),
  );
  const client = new Transport(configFor(kubeconfigFor(server.url, user)), { clock });
  t.teardown(() => client.close());
  return { ...server, client, tokens: () => server.seen.map(({ headers }) => headers.authorization) };
}

function pluginUser(folder: string, expirationTimestamp?: string): Readonly<Record<string, unknown>> {
  return {
    exec: {
      apiVersion: "client.authentication.k8s.io/v1",
      command: process.execPath,
      args: [join(folder, "plugin.mjs"), join(folder, "log"), ...(expirationTimestamp ? [expirationTimestamp] : [])],
      interactiveMode: "Never",
    },
  };
}

const hours = (count: number): string => new Date(Date.now() + count * 3_600_000).toISOString();

const plugins: readonly [name: string, expiry: string | undefined, tokens: readonly string[]][] = [
  ["is run again when its token has expired", hours(-1), ["token-1", "token-1", "token-2"]],
  ["is run once when its token has not expired", hours(1), ["token-1", "token-1", "token-1"]],
  ["is run once when its token never expires", undefined, ["token-1", "token-1", "token-1"]],
];

for (const [name, expiry, tokens] of plugins) {
  await tap.test(`Transport: an exec plugin ${name}`, async (t) => {
    const clock = new FakeClock();
    const server = await connect(t, pluginUser(t.testdir({ "plugin.mjs": PLUGIN }), expiry), clock);
    await server.client.request(GET);
    await server.client.request(GET);
    clock.advance(60_000);
    await server.client.request(GET);
    t.same(
      server.tokens(),
      tokens.map((token) => `Bearer ${token}`),
    );
  });
}

await tap.test(
  "Transport: a plugin whose token is refused is run again at once, though its token has not expired",
  async (t) => {
    const folder = t.testdir({ "plugin.mjs": PLUGIN });
    const server = await startServer(t, ({ headers }, response) =>
      headers.authorization === "Bearer token-1" ? sendStatus(response, 401) : sendJson(response, 200, {}),
    );
    const client = new Transport(configFor(kubeconfigFor(server.url, pluginUser(folder, hours(1)))));
    t.teardown(() => client.close());
    await Promise.all([client.request(GET), client.request(GET)]);
    await client.request(GET);
    const used = server.seen.map(({ headers }) => headers.authorization);
    t.equal(used.filter((token) => token === "Bearer token-2").length, 3, "every request passed in the end");
    t.equal(readFileSync(join(folder, "log"), "utf8"), "xx", "the plugin ran twice");
  },
);

const brokenPlugins: readonly [name: string, plugin: string, words: RegExp][] = [
  ["fails", "console.error('log in first'); process.exit(1);", /no credentials for .*: log in first/],
  ["prints no JSON", "console.log('hello');", /no credentials for .*JSON/],
];

for (const [name, plugin, words] of brokenPlugins) {
  await tap.test(`Transport throws Unauthorized when the exec plugin ${name}`, async (t) => {
    const server = await connect(t, pluginUser(t.testdir({ "plugin.mjs": plugin })), new FakeClock());
    await t.rejects(server.client.request(GET), { code: "Unauthorized", message: words });
    t.same(server.seen, []);
  });
}

await tap.test("Transport throws Unauthorized when the exec plugin does not exist", async (t) => {
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: "/nowhere/ksvm-plugin",
    interactiveMode: "Never",
  };
  const server = await connect(t, { exec }, new FakeClock());
  await t.rejects(server.client.request(GET), { code: "Unauthorized", message: /ENOENT/ });
});

await tap.test("Transport: the line break of a tokenFile is not part of the token", async (t) => {
  const server = await startServer(t, (_, response) => sendJson(response, 200, {}));
  const tokenFile = join(t.testdir({ token: "secret\n" }), "token");
  const cluster = { name: "local", server: server.url, skipTLSVerify: true };
  const client = new Transport(new ClusterConfig(cluster, { name: "jane", tokenFile }, { context: "local" }));
  t.teardown(() => client.close());
  await client.request(GET);
  t.equal(server.seen[0]?.headers.authorization, "Bearer secret");
});

await tap.test("Transport sends a token, or a user name and a password, from the kubeconfig", async (t) => {
  const byToken = await connect(t, { token: "secret" }, new FakeClock());
  await byToken.client.request(GET);
  t.same(byToken.tokens(), ["Bearer secret"]);
  const byPassword = await connect(t, { username: "jane", password: "doe" }, new FakeClock());
  await t.rejects(byPassword.client.request(GET), { code: "Unauthorized" });
  const basic = `Basic ${btoa("jane:doe")}`;
  t.same(byPassword.tokens(), [basic, basic], "tried once more with credentials that are not cached");
});

/** Prints a token for the cluster that it is told of. */
const PLUGIN_FOR_CLUSTER = `
const { spec: { cluster } } = JSON.parse(process.env.KUBERNETES_EXEC_INFO);
console.log(JSON.stringify({
  apiVersion: "client.authentication.k8s.io/v1",
  kind: "ExecCredential",
  status: { token: "for-" + cluster.server },
}));
`;

await tap.test("Transport: a user of two clusters has the credentials of each one there alone", async (t) => {
  const start = () =>
    startServer(t, ({ headers }, response) =>
      headers.authorization === `Bearer for-http://${headers.host}`
        ? sendJson(response, 200, {})
        : sendStatus(response, 401),
    );
  const servers = { one: await start(), other: await start() };
  const folder = t.testdir({ "plugin.mjs": PLUGIN_FOR_CLUSTER });
  const exec = {
    apiVersion: "client.authentication.k8s.io/v1",
    command: process.execPath,
    args: [join(folder, "plugin.mjs")],
    interactiveMode: "Never",
    provideClusterInfo: true,
  };
  const config = new KubeConfig();
  config.loadFromOptions({
    clusters: Object.entries(servers).map(([name, { url }]) => ({ name, server: url, skipTLSVerify: true })),
    users: [{ name: "jane", exec }],
    contexts: Object.keys(servers).map((name) => ({ name, cluster: name, user: "jane" })),
    currentContext: "one",
  });
  for (const [name, { seen, url }] of Object.entries(servers)) {
    config.setCurrentContext(name);
    const client = new Transport(config);
    t.teardown(() => client.close());
    await client.request(GET);
    t.same(
      seen.map(({ headers }) => headers.authorization),
      [`Bearer for-${url}`],
      "no server is sent the token for another one",
    );
  }
});
