import { writeFileSync } from "node:fs";
import { join } from "node:path";

import tap from "tap";

import { KsvmError } from "../../../../src/errors.ts";
import { loadKubeConfig, withServer } from "../../../../src/old/kube/connect/config.ts";
import { configFor, kubeconfigFor } from "../local-server.ts";

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

/** What `KUBECONFIG` and the other variables lead to; the home is an empty folder. */
function loadWith(variables: Readonly<Record<string, string>>, context?: string) {
  const environment = { variables: { HOME: "/nowhere", ...variables }, isTerminal: false };
  const config = loadKubeConfig({ environment, ...(context === undefined ? {} : { context }) });
  return { server: config.getCurrentCluster()?.server, user: config.getCurrentUser() };
}

await tap.test("loadKubeConfig() takes KUBECONFIG, else the file in the home, when no file is named", (t) => {
  const home = t.testdir({ ".kube": { config: kubeconfigFor("https://home:6443") }, config: kubeconfigFor(SERVER) });
  t.equal(loadWith({ KUBECONFIG: join(home, "config"), HOME: home }).server, SERVER);
  t.equal(loadWith({ KUBECONFIG: "", HOME: home }).server, "https://home:6443");
  const error = errorOf(() => loadWith({ KUBECONFIG: join(home, "missing"), HOME: home }));
  t.equal(error.code, "KubeconfigInvalid");
  t.match(error.message, /^Cannot find a cluster: there is no kubeconfig and no service account/);
  t.end();
});

const FIRST = `
clusters: [{name: shared, cluster: {server: "https://first:1"}}, {name: a, cluster: {server: "https://a:1"}}]
users: [{name: shared, user: {token: first}}]
contexts: [{name: a, context: {cluster: a, user: b}}, {name: both, context: {cluster: shared, user: shared}}]
`;
const SECOND = `
clusters: [{name: shared, cluster: {server: "https://second:1", tls-server-name: second}}]
users: [{name: shared, user: {token: second, as: jane}}, {name: b, user: {token: b}}]
contexts: [{name: both, context: {cluster: a, user: b}}, {name: lost, context: {cluster: a, user: gone}}]
current-context: both
`;

await tap.test("loadKubeConfig() merges the files of KUBECONFIG: the first definition and current context win", (t) => {
  const folder = t.testdir({ first: FIRST, second: SECOND, third: "current-context: a\n" });
  const list = (...names: string[]): Record<string, string> => ({
    KUBECONFIG: names.map((name) => join(folder, name)).join(":"),
  });
  t.equal(loadWith(list("first", "second")).server, "https://first:1");
  t.same(loadWith(list("first", "second")).user?.token, "first");
  t.equal(loadWith(list("first", "second")).user?.impersonateUser, undefined, "an entry is not mixed from two files");
  t.equal(
    loadWith(list("missing", "third", "first", "second", "first")).server,
    "https://a:1",
    "missing files are skipped",
  );
  t.equal(loadWith(list("first", "second"), "a").user?.token, "b", "one file names a user that another defines");
  t.match(
    errorOf(() => loadWith(list("first", "second"), "lost")).message,
    /^Cannot use context "lost": .* has no user "gone"$/,
  );
  t.end();
});

await tap.test("loadKubeConfig() throws KubeconfigInvalid when one file of KUBECONFIG cannot be read", (t) => {
  const folder = t.testdir({
    first: FIRST,
    broken: "clusters: [",
    twice: `${FIRST}\n`.replace("name: a, c", "name: shared, c"),
  });
  for (const [name, words] of [
    ["broken", /broken": /],
    ["twice", /it defines cluster "shared" twice/],
  ] as const) {
    const error = errorOf(() => loadWith({ KUBECONFIG: `${join(folder, "first")}:${join(folder, name)}` }, "a"));
    t.equal(error.code, "KubeconfigInvalid");
    t.match(error.message, words);
  }
  t.end();
});

await tap.test("loadKubeConfig() reads paths from the folder of the kubeconfig that names them", (t) => {
  const cluster = "{server: https://a:1, certificate-authority: pki/ca.crt}";
  const exec = "{apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: COMMAND}";
  const user = `{tokenFile: ../token, client-certificate: c, client-key: /abs/k, exec: ${exec}}`;
  const text = `{clusters: [{name: c, cluster: ${cluster}}], users: [{name: u, user: ${user}}],
    contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}`;
  const folder = t.testdir({ config: text.replace("COMMAND", "./plugin"), other: text.replace("COMMAND", "plugin") });
  const config = loadKubeConfig({ kubeconfig: join(folder, "config") });
  t.equal(config.getCurrentCluster()?.caFile, join(folder, "pki/ca.crt"));
  t.match(config.getCurrentUser(), {
    tokenFile: join(folder, "../token"),
    certFile: join(folder, "c"),
    keyFile: "/abs/k",
    exec: { command: join(folder, "plugin") },
  });
  const other = loadKubeConfig({ kubeconfig: join(folder, "other") });
  t.match(other.getCurrentUser(), { exec: { command: "plugin" } }, "a command without a slash is looked for in PATH");
  t.end();
});

await tap.test("loadKubeConfig() takes the service account in a pod, unless there is a kubeconfig", (t) => {
  const serviceAccount = t.testdir({ token: "secret", "ca.crt": "" });
  const load = (variables: Record<string, string>) =>
    loadKubeConfig({
      serviceAccount,
      environment: { variables: { HOME: "/nowhere", ...variables }, isTerminal: false },
    });
  const pod = { KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443" };
  const config = load(pod);
  t.match(config.getCurrentCluster(), { server: "https://[fd00::1]:443", caFile: join(serviceAccount, "ca.crt") });
  t.match(config.getCurrentUser(), { tokenFile: join(serviceAccount, "token") });
  t.equal(errorOf(() => load({})).code, "KubeconfigInvalid", "the file alone is no pod");
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(SERVER) }), "config");
  t.equal(load({ ...pod, KUBECONFIG: kubeconfig }).getCurrentCluster()?.server, SERVER);
  t.end();
});

await tap.test("loadKubeConfig() leaves out credentials where the server has no TLS", (t) => {
  const path = join(t.testdir({ config: kubeconfigFor("localhost:8001", { token: "secret", as: "jane" }) }), "config");
  const config = loadKubeConfig({ kubeconfig: path });
  t.equal(config.getCurrentCluster()?.server, "http://localhost:8001");
  const { name, impersonateUser, ...others } = config.getCurrentUser() ?? {};
  t.same({ name, impersonateUser }, { name: "jane", impersonateUser: "jane" }, "as kubectl, it does say who is meant");
  t.notMatch(JSON.stringify(others), "secret");
  t.end();
});

const EXEC = { apiVersion: "client.authentication.k8s.io/v1", command: "plugin", interactiveMode: "Never" };
const users: readonly [name: string, user: Readonly<Record<string, unknown>>, words: RegExp][] = [
  ["a token and a password", { token: "a", username: "b", password: "c" }, /both a token and a username/],
  ["groups without a user to act as", { "as-groups": ["a"] }, /as-uid, as-groups and as-user-extra need as/],
  ["a certificate without its key", { "client-certificate-data": "YQ==" }, /needs its key/],
  ["an exec without a command", { exec: { ...EXEC, command: "" } }, /exec has no command/],
  ["an exec of another version", { exec: { ...EXEC, apiVersion: "v1alpha1" } }, /exec has apiVersion "v1alpha1"/],
  ["an exec without interactiveMode", { exec: { ...EXEC, interactiveMode: "" } }, /exec has no interactiveMode/],
  ["auth-provider oidc", { "auth-provider": { name: "oidc" } }, /"oidc" is not supported, as .* use an exec plugin/],
  ["auth-provider gcp", { "auth-provider": { name: "gcp" } }, /"gcp" was removed from kubectl in 1\.26/],
  ["an unknown auth-provider", { "auth-provider": { name: "x" } }, /"x" is not known/],
];

for (const [name, user, words] of users) {
  await tap.test(`loadKubeConfig() throws KubeconfigInvalid when the user has ${name}`, (t) => {
    const path = join(t.testdir({ config: kubeconfigFor(SERVER, user) }), "config");
    const error = errorOf(() => loadKubeConfig({ kubeconfig: path }));
    t.equal(error.code, "KubeconfigInvalid");
    t.match(error.message, words);
    t.end();
  });
}

const unusable: readonly [name: string, text: string, words: RegExp][] = [
  ["is not YAML", "clusters: [", /^Cannot load kubeconfig/],
  ["is empty", "", /^Cannot (load|use) kubeconfig/],
  ["has no contexts", "clusters: []\nusers: []\ncontexts: []\n", /names no cluster; choose one with --context/],
  ["has no current context", kubeconfigFor(SERVER).replace(/^current-context.*$/m, ""), /names no cluster/],
  [
    "names a server with a password in it",
    kubeconfigFor("ftp://jane:not-to-be-seen@10.0.0.1"),
    /^(?!.*not-to-be-seen).*server "ftp:\/\/…@10\.0\.0\.1" is not/s,
  ],
  ["names a server that is no URL", kubeconfigFor("10.0.0.1/x"), /server "10.0.0.1\/x" is not an http or https URL/],
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

const mistakes: readonly [name: string, place: RegExp | string, text: (credential: string) => string][] = [
  ["a tab", "at line 2, column 1 (tab as indent)", (it) => `users: [{ name: a, user: { token: ${it} } }]\n\t${it}: b`],
  ["an open quote", /at line \d+, column \d+ \(missing char\)/, (it) => `token: "${it}\ncontexts: []`],
  ["an unknown escape", /\(bad dq escape\)/, (it) => `token: "\\q${it}"`],
  ["text after a value", /\(unexpected token\)/, (it) => `token: 'a' ${it}`],
  ["a second document", /\(multiple docs\)/, (it) => `clusters: []\n---\ntoken: ${it}`],
  ["an alias without an anchor", /an alias has no anchor/, (it) => `token: *${it}`],
  ["no map", "it is not a map", (it) => it],
  ["a map as a key", "names no cluster", (it) => `? { token: ${it} }\n: a`],
];

for (const [name, place, text] of mistakes) {
  await tap.test(`loadKubeConfig() tells of ${name} in a kubeconfig without what stands there`, (t) => {
    const path = join(t.testdir({ config: text("not-to-be-seen") }), "config");
    const warned: unknown[] = [];
    const onWarning = (warning: Error): unknown => warned.push(warning);
    process.on("warning", onWarning);
    t.teardown(() => process.off("warning", onWarning));
    const error = errorOf(() => loadKubeConfig({ kubeconfig: path }));
    t.equal(error.code, "KubeconfigInvalid");
    t.match(error.message, place);
    t.notMatch(`${error.message} ${String(error.cause)}`, "not-to-be-seen");
    setImmediate(() => {
      t.same(warned, []);
      t.end();
    });
  });
}

await tap.test(
  "loadKubeConfig() takes --server as kubectl does: with the credentials, and without tls-server-name",
  (t) => {
    const http = kubeconfigFor("http://127.0.0.1:1", { token: "secret" });
    const named = kubeconfigFor(SERVER, { token: "secret" }).replace(
      "server:",
      "tls-server-name: other\n      server:",
    );
    const folder = t.testdir({ http, named });
    const server = "https://10.0.0.9:6443";
    for (const file of ["http", "named"]) {
      const config = loadKubeConfig({ kubeconfig: join(folder, file), server });
      t.match(config.getCurrentCluster(), { server });
      t.equal(config.getCurrentCluster()?.tlsServerName, undefined);
      t.equal(config.getCurrentUser()?.token, "secret");
    }
    const unproven = loadKubeConfig({ kubeconfig: join(folder, "named"), server: "http://10.0.0.9:8001" });
    t.equal(unproven.getCurrentUser()?.token, undefined, "and sends no token to a server without TLS");
    t.end();
  },
);

await tap.test("loadKubeConfig() names a proxy that it cannot use, without a password in it", (t) => {
  const kubeconfig = join(t.testdir({ config: kubeconfigFor(SERVER) }), "config");
  for (const proxy of ["jane:secret@bad host", "ftp://jane:secret@host"]) {
    const environment = { variables: { HTTPS_PROXY: proxy }, isTerminal: false };
    const error = errorOf(() => loadKubeConfig({ kubeconfig, environment }));
    t.equal(error.code, "KubeconfigInvalid");
    t.match(error.message, /^Cannot use HTTPS_PROXY or HTTP_PROXY: proxy "[^"]*host" is not the URL/);
    t.notMatch(error.message, "secret");
  }
  t.end();
});

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
