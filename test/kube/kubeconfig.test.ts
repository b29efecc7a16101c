// The rows of docs/kubeconfig.md: kubectl and ksvm are given the same files and variables, and what they send, or refuse with, is compared.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { stringify } from "yaml";
import { systemClock } from "../../src/clock.ts";
import { loadKubeconfig } from "../../src/kube/kubeconfig.ts";
import { Client } from "../../src/kube/client.ts";
import { senderFor } from "../../src/kube/undici-send.ts";
import { issueCa } from "../../src/certs/issue.ts";
import { issueSelfSigned } from "../certs/self-signed.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { runKubectl } from "../integration/kubectl.ts";
import { NAME, recordingProxy, recordingServer, recordingSocks, type Seen } from "./recording-server.ts";

const { kubectl } = await ensureBinaries(["kubectl"]);

const GROUP = "client.authentication.k8s.io";
const tls = await recordingServer(t);
const plain = await recordingServer(t, false);
const proxy = await recordingProxy(t);
const socks = await recordingSocks(t);
/** Spoken to by TLS, with the certificate of the server. */
const tlsProxy = await recordingProxy(t, tls);
/** The same, with a certificate of an authority that nobody trusts. */
const strangeProxy = await recordingProxy(t, await recordingServer(t));
const CA = Buffer.from(tls.caPem).toString("base64");
const DIRECT = `https://127.0.0.1:${tls.port}`;
const BY_NAME = `https://${NAME}:${tls.port}`;

type Fields = Readonly<Record<string, unknown>>;

/** The text of a kubeconfig with one context. */
function kubeconfig(cluster: Fields, user: Fields | undefined, name = "x"): string {
  return stringify({
    clusters: [{ name, cluster: { server: DIRECT, "certificate-authority-data": CA, ...cluster } }],
    ...(user === undefined ? {} : { users: [{ name, user }] }),
    contexts: [{ name, context: { cluster: name, user: name } }],
    "current-context": name,
  });
}

interface Row {
  readonly name: string;
  /** Of the kubeconfig `config`. @default the server as it is */
  readonly cluster?: Fields;
  /** The same. @default one with a token */
  readonly user?: Fields;
  /** What lies in the folder beside it, or in its place. @default nothing */
  readonly files?: Readonly<Record<string, string>>;
  readonly variables?: (folder: string) => Readonly<Record<string, string>>;
  /** The flags `--kubeconfig` and `--context`, by the name of the file and of the context. @default none */
  readonly flags?: { readonly kubeconfig?: string; readonly context?: string };
  /** What kubectl and ksvm say where both refuse. @default both send the same */
  readonly refused?: readonly [kubectl: RegExp, ksvm: RegExp];
  /** Why it is skipped. @default it is not */
  readonly skip?: string | false;
}

interface Outcome {
  /** What the servers saw; empty where nothing was sent. */
  readonly seen: readonly Seen[];
  readonly proxied: readonly string[];
  readonly error: string | undefined;
}

/** What the servers and proxies saw while `ask` ran. */
async function outcomeOf(ask: () => Promise<string | undefined>): Promise<Outcome> {
  for (const list of [tls.seen, plain.seen, proxy.asked, socks.asked, tlsProxy.asked]) list.splice(0);
  const error = await ask();
  return { seen: [...tls.seen, ...plain.seen], proxied: [...proxy.asked, ...socks.asked, ...tlsProxy.asked], error };
}

type Ask = (
  variables: Readonly<Record<string, string>>,
  flags: NonNullable<Row["flags"]>,
) => Promise<string | undefined>;

const withKubectl: Ask = async (variables, flags) => {
  const named = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  const { code, stderr } = await runKubectl(kubectl, ["get", "--raw", "/version", ...named], { env: { ...variables } });
  return code === 0 ? undefined : stderr;
};

const withKsvm: Ask = async (variables, flags) => {
  try {
    const access = loadKubeconfig({ ...flags, variables });
    const { close, send } = senderFor(access, systemClock);
    const client = new Client({ address: access.server, send, clock: systemClock, random: Math.random });
    await client.get("/version", { signal: AbortSignal.timeout(20_000) }).finally(close);
    return undefined;
  } catch (error) {
    return String(error);
  }
};

/** Writes the files and asks with both. */
async function askBoth(t: Test, { cluster = {}, user = { token: "a" }, ...row }: Row) {
  const { flags = {}, files = {}, variables = () => ({}) } = row;
  const folder = t.testdir();
  for (const [name, text] of Object.entries({ config: kubeconfig(cluster, user), ...files })) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    if (text.startsWith("#!")) chmodSync(path, 0o755);
  }
  const own = { HOME: folder, KUBECONFIG: join(folder, "config"), PATH: dirname(process.execPath) };
  const all = { ...own, ...variables(folder) };
  const { kubeconfig: file } = flags;
  const given = { ...flags, ...(file === undefined ? {} : { kubeconfig: join(folder, file) }) };
  const byKubectl = await outcomeOf(() => withKubectl(all, given));
  const byKsvm = await outcomeOf(() => withKsvm(all, given));
  return { folder, byKubectl, byKsvm };
}

/** A shell script beside a module: how Node.js reads a file without an extension depends on the folders above it. */
const SCRIPT = `#!/bin/sh\nexec "${process.execPath}" "\${0%/*}/plugin.mjs"\n`;
const FAILING = "#!/bin/sh\necho log in first >&2; exit 3\n";
/** The files of an exec plugin that hands this out. */
function plugin(status: Fields, apiVersion = `${GROUP}/v1`): Readonly<Record<string, string>> {
  const module = `
import { appendFileSync } from "node:fs";
const { KUBERNETES_EXEC_INFO, ADDED } = process.env;
appendFileSync(import.meta.dirname + "/log", JSON.stringify({ info: JSON.parse(KUBERNETES_EXEC_INFO), ADDED }) + "\\n");
console.log(JSON.stringify({ apiVersion: "${apiVersion}", kind: "ExecCredential", status: ${JSON.stringify(status)} }));
`;
  return { "bin/plugin": SCRIPT, "bin/plugin.mjs": module };
}
const exec = (fields: Fields = {}): Fields => ({
  exec: { apiVersion: `${GROUP}/v1`, command: "./bin/plugin", interactiveMode: "IfAvailable", ...fields },
});
const inBin = (folder: string) => ({ PATH: `${join(folder, "bin")}:${dirname(process.execPath)}` });
const issued = plugin({ token: "issued" });

const { certPem, keyPem } = await issueCa({ now: new Date(), lifetimeMs: 3_600_000 });
const encoded = (pem: string): string => Buffer.from(pem).toString("base64");

const first = kubeconfig({}, { token: "first" }, "a");
const second = kubeconfig({ server: "https://127.0.0.1:1" }, { token: "second" }, "a").replace(
  "current-context: a",
  "current-context: b",
);
const third = kubeconfig({}, { token: "third" }, "b").replace("current-context: b", "");
const several =
  (...names: readonly string[]) =>
  (folder: string) => ({ KUBECONFIG: names.map((name) => join(folder, name)).join(":") });

const at = (port: number, scheme = "http"): string => `${scheme}://127.0.0.1:${port}`;
const NOWHERE = at(1);

const rows: readonly Row[] = [
  {
    name: "KUBECONFIG with several files: the first definition and the first current-context",
    files: { first: first.replace("current-context: a", "current-context: ''"), second, third },
    variables: several("gone", "first", "second", "third"),
  },
  {
    name: "KUBECONFIG with several files: an entry is taken whole from the first file",
    files: { first, second },
    variables: several("first", "second"),
  },
  { name: "~/.kube/config", files: { ".kube/config": first }, variables: () => ({ KUBECONFIG: "" }) },
  { name: "--kubeconfig, before KUBECONFIG", files: { config: second, other: first }, flags: { kubeconfig: "other" } },
  {
    name: "--context, before current-context",
    files: { second, third },
    variables: several("second", "third"),
    flags: { context: "b" },
  },
  { name: "token", user: { token: "secret" } },
  { name: "tokenFile", user: { tokenFile: "t/token" }, files: { "t/token": "from-file\n" } },
  { name: "tokenFile beside a token", user: { token: "secret", tokenFile: "token" }, files: { token: "from-file\n" } },
  { name: "tokenFile that does not exist beside a token", user: { token: "secret", tokenFile: "token" } },
  { name: "username and password", user: { username: "jane", password: "d:oe" } },
  {
    name: "client-certificate, relative to the kubeconfig",
    user: { "client-certificate": "pki/c", "client-key": "pki/k" },
    files: { "pki/c": certPem, "pki/k": keyPem },
  },
  {
    name: "client-certificate-data",
    user: { "client-certificate-data": encoded(certPem), "client-key-data": encoded(keyPem) },
  },
  {
    name: "as, as-uid, as-groups, as-user-extra",
    user: {
      token: "secret",
      as: "jané",
      "as-uid": "7",
      "as-groups": ["dev", "运维"],
      "as-user-extra": { "example.com/Scope%": ["a", "ü"] },
    },
  },
  {
    name: "an exec plugin, relative to the kubeconfig",
    user: exec({ env: [{ name: "ADDED", value: "1" }], provideClusterInfo: true }),
    files: issued,
  },
  {
    name: "an exec plugin in PATH that hands out a certificate",
    user: exec({ command: "plugin" }),
    files: plugin({ clientCertificateData: certPem, clientKeyData: keyPem }),
    variables: inBin,
  },
  {
    name: "an exec plugin of v1beta1, which needs no interactiveMode",
    user: { exec: { apiVersion: `${GROUP}/v1beta1`, command: "./bin/plugin" } },
    files: plugin({ token: "issued" }, `${GROUP}/v1beta1`),
  },
  { name: "an exec plugin beside a token", user: { ...exec(), token: "secret" }, files: issued },
  {
    name: "a base path",
    skip: unlessAtLeast(34, "kubectl get --raw honors the path of the server (kubernetes#131165)"),
    cluster: { server: `${DIRECT}/k8s/clusters/c-1/` },
  },
  {
    name: "a server without TLS, to which no credentials are sent",
    cluster: { server: at(plain.port), "certificate-authority-data": "" },
    user: { token: "secret", as: "jane" },
  },
  { name: "a server without a scheme", cluster: { server: `127.0.0.1:${plain.port}` } },
  {
    name: "certificate-authority, relative to the kubeconfig, and tls-server-name",
    cluster: { "certificate-authority-data": "", "certificate-authority": "ca.crt", "tls-server-name": NAME },
    files: { "ca.crt": tls.caPem },
  },
  { name: "disable-compression", cluster: { "disable-compression": true } },
  {
    name: "insecure-skip-tls-verify, which is true of a proxy as well",
    cluster: {
      server: BY_NAME,
      "certificate-authority-data": "",
      "insecure-skip-tls-verify": true,
      "proxy-url": at(tlsProxy.port, "https"),
    },
  },
  {
    name: "proxy-url with a user name and password",
    cluster: { server: BY_NAME, "proxy-url": `http://jane:d%40e@127.0.0.1:${proxy.port}` },
  },
  { name: "proxy-url of a SOCKS5 proxy", cluster: { server: BY_NAME, "proxy-url": at(socks.port, "socks5") } },
  {
    name: "proxy-url before a server without TLS",
    cluster: { server: `http://${NAME}:${plain.port}`, "proxy-url": at(proxy.port) },
  },
  {
    name: "proxy-url of a proxy that is spoken to by TLS",
    cluster: { server: BY_NAME, "proxy-url": at(tlsProxy.port, "https") },
  },
  {
    name: "proxy-url beside HTTPS_PROXY and NO_PROXY",
    cluster: { server: BY_NAME, "proxy-url": at(proxy.port) },
    variables: () => ({ HTTPS_PROXY: NOWHERE, NO_PROXY: "*" }),
  },
  {
    name: "HTTPS_PROXY",
    cluster: { server: BY_NAME },
    variables: () => ({ HTTPS_PROXY: at(proxy.port), HTTP_PROXY: NOWHERE }),
  },
  {
    name: "https_proxy without a scheme, and a NO_PROXY for others",
    cluster: { server: BY_NAME },
    variables: () => ({ https_proxy: `127.0.0.1:${proxy.port}`, NO_PROXY: `.${NAME},10.0.0.0/8,${NAME}:1` }),
  },
  { name: "HTTPS_PROXY for a server on this machine", variables: () => ({ HTTPS_PROXY: NOWHERE }) },
  {
    name: "HTTP_PROXY for a server without TLS",
    cluster: { server: `http://${NAME}:${plain.port}`, "certificate-authority-data": "" },
    variables: () => ({ HTTP_PROXY: at(proxy.port), HTTPS_PROXY: NOWHERE }),
  },
  {
    name: "a file of KUBECONFIG that is no YAML",
    files: { first, broken: "clusters: [" },
    variables: several("first", "broken"),
    refused: [/error loading config file/, /".*broken" cannot be read/],
  },
  {
    name: "a context whose user does not exist (kubectl asks for a user name)",
    files: { config: kubeconfig({}, undefined) },
    refused: [/EOF/, /there is no user "x"/],
  },
  {
    name: "as-groups without as",
    user: { token: "a", "as-groups": ["b"] },
    refused: [/without impersonating a user/, /need as/],
  },
  {
    name: "a token of two lines",
    user: { token: "a\nb" },
    refused: [/invalid header field value for "Authorization"/, /the token has a line break/],
  },
  {
    name: "a server whose authority this machine does not know",
    cluster: { "certificate-authority-data": "" },
    refused: [/certificate signed by unknown authority/, /certificate/],
  },
  {
    name: "a cluster without a server (kubectl takes localhost:8080)",
    cluster: { server: "" },
    refused: [/localhost:8080/, /names no cluster that there is/],
  },
  {
    name: "a --kubeconfig that does not exist",
    flags: { kubeconfig: "gone" },
    refused: [/gone: no such file/, /".*gone" cannot be read/],
  },
  {
    name: "a --context that does not exist",
    flags: { context: "gone" },
    refused: [/context "gone" does not exist/, /there is no context "gone"; there are "x"/],
  },
  {
    name: "a proxy of an unknown kind",
    cluster: { "proxy-url": at(1, "ftp") },
    refused: [/unsupported scheme "ftp"/, /is not the URL of an http, https or socks5 proxy/],
  },
  {
    name: "HTTPS_PROXY of a proxy whose certificate no one trusts",
    cluster: { server: BY_NAME },
    variables: () => ({ HTTPS_PROXY: at(strangeProxy.port, "https") }),
    refused: [/certificate signed by unknown authority/, /no trusted connection to /],
  },
  {
    name: "an exec plugin that is missing",
    user: exec({ command: "ksvm-no-such-plugin", installHint: "get it at example.com" }),
    refused: [/not found[^]*get it at example\.com/, /ksvm-no-such-plugin ENOENT; get it at example\.com/],
  },
  {
    name: "an exec plugin that fails",
    user: exec(),
    files: { "bin/plugin": FAILING },
    refused: [/log in first[^]*failed with exit code 3/, /log in first/],
  },
  {
    name: "an exec plugin that must ask where there is no terminal",
    user: exec({ interactiveMode: "Always" }),
    files: { "bin/plugin": FAILING },
    refused: [/standard input is not a terminal/, /must ask the user, and is given no terminal/],
  },
];

for (const row of rows) {
  const { name, refused, skip = false } = row;
  const how = refused === undefined ? "send the same" : "refuse";
  await t.test(`kubectl and ksvm ${how}: ${name}`, { skip }, async (t) => {
    const { byKubectl, byKsvm } = await askBoth(t, row);
    if (refused === undefined) {
      t.equal(byKubectl.error, undefined);
      t.equal(byKubectl.seen.length, 1);
      t.same(byKsvm, byKubectl);
    } else {
      t.match(byKubectl.error, refused[0]);
      t.match(byKsvm.error, refused[1]);
      t.same([byKubectl.seen, byKsvm.seen], [[], []]);
    }
  });
}

await t.test("kubectl and ksvm tell an exec plugin the same", async (t) => {
  const extensions = [{ name: `${GROUP}/exec`, extension: { audience: "a", level: 3 } }];
  const { folder } = await askBoth(t, {
    name: "",
    cluster: { "tls-server-name": NAME, extensions },
    user: exec({ env: [{ name: "ADDED", value: "1" }], provideClusterInfo: true }),
    files: issued,
  });
  const [byKubectl, byKsvm, ...others] = readFileSync(join(folder, "bin/log"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Fields);
  t.same(byKsvm, byKubectl);
  const spec = { interactive: false, cluster: { config: { audience: "a" } } };
  t.match(byKubectl, { ADDED: "1", info: { kind: "ExecCredential", spec } });
  t.same(others, []);
});

await t.test("ksvm is anonymous where the context has no user; kubectl asks for a user name", async (t) => {
  const config = kubeconfig({}, undefined).replace("user: x", "user: ''");
  const { byKubectl, byKsvm } = await askBoth(t, { name: "", files: { config } });
  t.match(byKubectl.error, /EOF/);
  t.same(byKsvm, { seen: [{ path: "/version", headers: {}, client: undefined }], proxied: [], error: undefined });
});

await t.test("ksvm expects an https proxy to show its own name, kubectl tls-server-name", async (t) => {
  const names = { dnsNames: ["proxy.test"], ipAddresses: ["127.0.0.1"] };
  const own = await issueSelfSigned({ ...names, now: new Date(), lifetimeMs: 3_600_000 });
  const { asked, port } = await recordingProxy(t, own);
  const { byKubectl, byKsvm } = await askBoth(t, {
    name: "",
    cluster: {
      server: BY_NAME,
      "tls-server-name": NAME,
      "proxy-url": at(port, "https"),
      "certificate-authority-data": encoded(tls.caPem + own.caPem),
    },
  });
  t.match(byKubectl.error, /certificate is valid for proxy\.test, not ksvm\.test/);
  t.equal(byKsvm.error, undefined);
  t.same([byKubectl.seen.length, byKsvm.seen.length, asked.length], [0, 1, 1]);
});
