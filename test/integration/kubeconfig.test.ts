import { unlessAtLeast } from "../control-plane/features.ts";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { stringify } from "yaml";
import { loadKubeConfig } from "../../src/kube/connect/config.ts";
import { Transport } from "../../src/kube/transport.ts";
import { issueCa } from "../../src/certs/issue.ts";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { ensureBinaries } from "../control-plane/binaries.ts";
import { runKubectl } from "./kubectl.ts";
import { NAME, recordingProxy, recordingServer, recordingSocks, type Seen } from "./recording-server.ts";

// Each row of docs/kubeconfig.md: kubectl and ksvm are given the same files and variables, and what they send is compared.
const { kubectl } = await ensureBinaries(["kubectl"]);

const GROUP = "client.authentication.k8s.io";
const API_VERSION = `${GROUP}/v1`;
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

interface Case {
  readonly name: string;
  /** What lies in the folder; `config` is read where nothing else is said. */
  readonly files: Readonly<Record<string, string>>;
  readonly variables?: (folder: string) => Readonly<Record<string, string>>;
  /** The flags `--kubeconfig` and `--context`, by the name of the file and of the context. @default none */
  readonly flags?: { readonly kubeconfig?: string; readonly context?: string };
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

async function withKubectl(
  variables: Readonly<Record<string, string>>,
  flags: Case["flags"] = {},
): Promise<string | undefined> {
  const named = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  const { code, stderr } = await runKubectl(kubectl, ["get", "--raw", "/version", ...named], { env: { ...variables } });
  return code === 0 ? undefined : stderr;
}

async function withKsvm(
  variables: Readonly<Record<string, string>>,
  flags: Case["flags"] = {},
): Promise<string | undefined> {
  try {
    const transport = new Transport(loadKubeConfig({ ...flags, environment: { variables, isTerminal: false } }));
    try {
      await transport.request({ method: "GET", path: "/version" });
      return undefined;
    } finally {
      await transport.close();
    }
  } catch (error) {
    return String(error);
  }
}

/** Writes the files and asks with both. */
async function askBoth(t: Test, { files, flags = {}, variables = () => ({}) }: Case) {
  const folder = t.testdir();
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    if (text.startsWith("#!")) chmodSync(path, 0o755);
  }
  const all = {
    HOME: folder,
    KUBECONFIG: join(folder, "config"),
    PATH: dirname(process.execPath),
    ...variables(folder),
  };
  const { kubeconfig: file } = flags;
  const given = { ...flags, ...(file === undefined ? {} : { kubeconfig: join(folder, file) }) };
  const byKubectl = await outcomeOf(() => withKubectl(all, given));
  const byKsvm = await outcomeOf(() => withKsvm(all, given));
  return { folder, byKubectl, byKsvm };
}

/** A shell script beside a module: how Node.js reads a file without an extension depends on the folders above it. */
const SCRIPT = `#!/bin/sh\nexec "${process.execPath}" "\${0%/*}/plugin.mjs"\n`;
const PLUGIN = (status: Fields): string => `
import { appendFileSync } from "node:fs";
const { KUBERNETES_EXEC_INFO, ADDED } = process.env;
appendFileSync(import.meta.dirname + "/log", JSON.stringify({ info: JSON.parse(KUBERNETES_EXEC_INFO), ADDED }) + "\\n");
console.log(JSON.stringify({ apiVersion: "${API_VERSION}", kind: "ExecCredential", status: ${JSON.stringify(status)} }));
`;
const exec = (fields: Fields = {}): Fields => ({
  exec: { apiVersion: API_VERSION, command: "./bin/plugin", interactiveMode: "IfAvailable", ...fields },
});

const ca = await issueCa({ now: new Date(), lifetimeMs: 3_600_000 });
const certificate = { cert: ca.certPem, key: ca.keyPem };
const encoded = (pem: string): string => Buffer.from(pem).toString("base64");

const first = kubeconfig({}, { token: "first" }, "a");
const second = kubeconfig({ server: "https://127.0.0.1:1" }, { token: "second" }, "a").replace(
  "current-context: a",
  "current-context: b",
);
const third = kubeconfig({}, { token: "third" }, "b").replace("current-context: b", "");

const sameCases: readonly Case[] = [
  {
    name: "KUBECONFIG with several files: the first definition and the first current-context",
    files: { first: first.replace("current-context: a", "current-context: ''"), second, third },
    variables: (folder) => ({
      KUBECONFIG: ["gone", "first", "second", "third"].map((name) => join(folder, name)).join(":"),
    }),
  },
  {
    name: "KUBECONFIG with several files: an entry is taken whole from the first file",
    files: { first, second },
    variables: (folder) => ({ KUBECONFIG: `${join(folder, "first")}:${join(folder, "second")}` }),
  },
  {
    name: "~/.kube/config",
    files: { ".kube/config": first },
    variables: () => ({ KUBECONFIG: "" }),
  },
  {
    name: "--kubeconfig, before KUBECONFIG",
    files: { config: second, other: kubeconfig({}, { token: "other" }) },
    flags: { kubeconfig: "other" },
  },
  {
    name: "--context, before current-context",
    files: { second, third },
    variables: (folder) => ({ KUBECONFIG: `${join(folder, "second")}:${join(folder, "third")}` }),
    flags: { context: "b" },
  },
  { name: "token", files: { config: kubeconfig({}, { token: "secret" }) } },
  { name: "tokenFile", files: { config: kubeconfig({}, { tokenFile: "t/token" }), "t/token": "from-file\n" } },
  {
    name: "tokenFile beside a token",
    files: { config: kubeconfig({}, { token: "secret", tokenFile: "token" }), token: "from-file\n" },
  },
  {
    name: "tokenFile that does not exist beside a token",
    files: { config: kubeconfig({}, { token: "secret", tokenFile: "token" }) },
  },
  { name: "username and password", files: { config: kubeconfig({}, { username: "jane", password: "d:oe" }) } },
  {
    name: "client-certificate, relative to the kubeconfig",
    files: {
      config: kubeconfig({}, { "client-certificate": "pki/c", "client-key": "pki/k" }),
      "pki/c": certificate.cert,
      "pki/k": certificate.key,
    },
  },
  {
    name: "client-certificate-data",
    files: {
      config: kubeconfig(
        {},
        {
          "client-certificate-data": encoded(certificate.cert),
          "client-key-data": encoded(certificate.key),
        },
      ),
    },
  },
  {
    name: "as, as-uid, as-groups, as-user-extra",
    files: {
      config: kubeconfig(
        {},
        {
          token: "secret",
          as: "jané",
          "as-uid": "7",
          "as-groups": ["dev", "运维"],
          "as-user-extra": { "example.com/Scope%": ["a", "ü"] },
        },
      ),
    },
  },
  {
    name: "an exec plugin, relative to the kubeconfig",
    files: {
      config: kubeconfig({}, exec({ env: [{ name: "ADDED", value: "1" }], provideClusterInfo: true })),
      "bin/plugin": SCRIPT,
      "bin/plugin.mjs": PLUGIN({ token: "issued" }),
    },
  },
  {
    name: "an exec plugin in PATH that hands out a certificate",
    files: {
      config: kubeconfig({}, exec({ command: "plugin" })),
      "bin/plugin": SCRIPT,
      "bin/plugin.mjs": PLUGIN({ clientCertificateData: certificate.cert, clientKeyData: certificate.key }),
    },
    variables: (folder) => ({ PATH: `${join(folder, "bin")}:${dirname(process.execPath)}` }),
  },
  {
    name: "an exec plugin of v1beta1, which needs no interactiveMode",
    files: {
      config: kubeconfig({}, { exec: { apiVersion: `${GROUP}/v1beta1`, command: "./bin/plugin" } }),
      "bin/plugin": SCRIPT,
      "bin/plugin.mjs": PLUGIN({ token: "issued" }).replace(API_VERSION, `${GROUP}/v1beta1`),
    },
  },
  {
    name: "an exec plugin beside a token",
    files: {
      config: kubeconfig({}, { ...exec(), token: "secret" }),
      "bin/plugin": SCRIPT,
      "bin/plugin.mjs": PLUGIN({ token: "issued" }),
    },
  },
  {
    name: "a base path",
    skip: unlessAtLeast(34, "kubectl get --raw honors the path of the server (kubernetes#131165)"),
    files: { config: kubeconfig({ server: `${DIRECT}/k8s/clusters/c-1/` }, { token: "a" }) },
  },
  {
    name: "a server without TLS, to which no credentials are sent",
    files: {
      config: kubeconfig(
        { server: `http://127.0.0.1:${plain.port}`, "certificate-authority-data": "" },
        { token: "secret", as: "jane" },
      ),
    },
  },
  {
    name: "a server without a scheme",
    files: { config: kubeconfig({ server: `127.0.0.1:${plain.port}` }, { token: "secret" }) },
  },
  {
    name: "certificate-authority, relative to the kubeconfig, and tls-server-name",
    files: {
      config: kubeconfig(
        { "certificate-authority-data": "", "certificate-authority": "ca.crt", "tls-server-name": NAME },
        { token: "a" },
      ),
      "ca.crt": tls.caPem,
    },
  },
  { name: "disable-compression", files: { config: kubeconfig({ "disable-compression": true }, { token: "a" }) } },
  {
    name: "insecure-skip-tls-verify",
    files: {
      config: kubeconfig({ "certificate-authority-data": "", "insecure-skip-tls-verify": true }, { token: "a" }),
    },
  },
  {
    name: "proxy-url with a user name and password",
    files: {
      config: kubeconfig({ server: BY_NAME, "proxy-url": `http://jane:d%40e@127.0.0.1:${proxy.port}` }, { token: "a" }),
    },
  },
  {
    name: "proxy-url of a SOCKS5 proxy",
    files: { config: kubeconfig({ server: BY_NAME, "proxy-url": `socks5://127.0.0.1:${socks.port}` }, { token: "a" }) },
  },
  {
    name: "proxy-url before a server without TLS",
    files: {
      config: kubeconfig(
        { server: `http://${NAME}:${plain.port}`, "proxy-url": `http://127.0.0.1:${proxy.port}` },
        { token: "a" },
      ),
    },
  },
  {
    name: "HTTPS_PROXY",
    files: { config: kubeconfig({ server: BY_NAME }, { token: "a" }) },
    variables: () => ({ HTTPS_PROXY: `http://127.0.0.1:${proxy.port}`, HTTP_PROXY: "http://127.0.0.1:1" }),
  },
  {
    name: "HTTPS_PROXY of a proxy that is spoken to by TLS",
    files: { config: kubeconfig({ server: BY_NAME }, { token: "a" }) },
    variables: () => ({ HTTPS_PROXY: `https://jane:d%40e@127.0.0.1:${tlsProxy.port}` }),
  },
  {
    name: "proxy-url of a proxy that is spoken to by TLS",
    files: {
      config: kubeconfig({ server: BY_NAME, "proxy-url": `https://127.0.0.1:${tlsProxy.port}` }, { token: "a" }),
    },
  },
  {
    name: "insecure-skip-tls-verify, which is true of a proxy as well",
    files: {
      config: kubeconfig(
        {
          server: BY_NAME,
          "certificate-authority-data": "",
          "insecure-skip-tls-verify": true,
          "proxy-url": `https://127.0.0.1:${tlsProxy.port}`,
        },
        { token: "a" },
      ),
    },
  },
  {
    name: "https_proxy without a scheme, and a NO_PROXY for others",
    files: { config: kubeconfig({ server: BY_NAME }, { token: "a" }) },
    variables: () => ({ https_proxy: `127.0.0.1:${proxy.port}`, NO_PROXY: `.${NAME},10.0.0.0/8,${NAME}:1` }),
  },
  {
    name: "HTTP_PROXY for a server without TLS",
    files: {
      config: kubeconfig(
        { server: `http://${NAME}:${plain.port}`, "certificate-authority-data": "" },
        { username: "jane", password: "doe" },
      ),
    },
    variables: () => ({ HTTP_PROXY: `http://127.0.0.1:${proxy.port}`, HTTPS_PROXY: "http://127.0.0.1:1" }),
  },
  {
    name: "HTTPS_PROXY for a server on this machine",
    files: { config: kubeconfig({}, { token: "a" }) },
    variables: () => ({ HTTPS_PROXY: "http://127.0.0.1:1" }),
  },
  {
    name: "proxy-url beside HTTPS_PROXY and NO_PROXY",
    files: { config: kubeconfig({ server: BY_NAME, "proxy-url": `http://127.0.0.1:${proxy.port}` }, { token: "a" }) },
    variables: () => ({ HTTPS_PROXY: "http://127.0.0.1:1", NO_PROXY: "*" }),
  },
];

for (const row of sameCases) {
  await t.test(`kubectl and ksvm send the same: ${row.name}`, { skip: row.skip ?? false }, async (t) => {
    const { byKubectl, byKsvm } = await askBoth(t, row);
    t.equal(byKubectl.error, undefined);
    t.equal(byKubectl.seen.length, 1);
    t.same(byKsvm, byKubectl);
  });
}

await t.test("kubectl and ksvm tell an exec plugin the same", async (t) => {
  const { folder } = await askBoth(t, {
    name: "",
    files: {
      config: kubeconfig(
        { "tls-server-name": NAME, extensions: [{ name: `${GROUP}/exec`, extension: { audience: "a", level: 3 } }] },
        exec({ env: [{ name: "ADDED", value: "1" }], provideClusterInfo: true }),
      ),
      "bin/plugin": SCRIPT,
      "bin/plugin.mjs": PLUGIN({ token: "issued" }),
    },
  });
  const [byKubectl = {}, byKsvm, ...others] = readFileSync(join(folder, "bin/log"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Fields);
  t.same(byKsvm, byKubectl);
  t.match(byKubectl, {
    ADDED: "1",
    info: { kind: "ExecCredential", spec: { interactive: false, cluster: { config: { audience: "a" } } } },
  });
  t.same(others, []);
});

const FAILING = "#!/bin/sh\necho log in first >&2; exit 3\n";
const refusedCases: readonly (Case & { readonly kubectl: RegExp; readonly ksvm: RegExp })[] = [
  {
    name: "a file of KUBECONFIG that is no YAML",
    files: { config: first, broken: "clusters: [" },
    variables: (folder) => ({ KUBECONFIG: `${join(folder, "config")}:${join(folder, "broken")}` }),
    kubectl: /error loading config file/,
    ksvm: /Cannot load kubeconfig ".*broken"/,
  },
  {
    name: "a name that a file defines twice",
    files: { config: first.replace("clusters:\n", `clusters:\n  - {name: a, cluster: {server: "${DIRECT}"}}\n`) },
    kubectl: /duplicate name "a" in list/,
    ksvm: /defines cluster "a" twice/,
  },
  {
    name: "a context whose user does not exist",
    files: { config: kubeconfig({}, undefined) },
    // It asks for a user name.
    kubectl: /EOF/,
    ksvm: /has no user "x"/,
  },
  {
    name: "a token and a password",
    files: { config: kubeconfig({}, { token: "a", username: "b", password: "c" }) },
    kubectl: /more than one authentication method/,
    ksvm: /both a token and a username/,
  },
  {
    name: "as-groups without as",
    files: { config: kubeconfig({}, { token: "a", "as-groups": ["b"] }) },
    kubectl: /without impersonating a user/,
    ksvm: /need as/,
  },
  {
    name: "a token of two lines",
    files: { config: kubeconfig({}, { token: "a\nb" }) },
    kubectl: /invalid header field value for "Authorization"/,
    ksvm: /the token has a line break or another control character/,
  },
  {
    name: "a certificate authority with insecure-skip-tls-verify",
    files: { config: kubeconfig({ "insecure-skip-tls-verify": true }, { token: "a" }) },
    kubectl: /insecure flag is not allowed/,
    ksvm: /has a certificate-authority and insecure-skip-tls-verify/,
  },
  {
    name: "a certificate authority of two kinds",
    files: { config: kubeconfig({ "certificate-authority": "ca.crt" }, { token: "a" }), "ca.crt": tls.caPem },
    kubectl: /certificate-authority-data and certificate-authority are both specified/,
    ksvm: /certificate-authority-data/,
  },
  {
    name: "a server whose authority this machine does not know",
    files: { config: kubeconfig({ "certificate-authority-data": "" }, { token: "a" }) },
    kubectl: /certificate signed by unknown authority/,
    ksvm: /certificate/,
  },
  {
    name: "a cluster without a server",
    files: { config: kubeconfig({ server: "" }, { token: "a" }) },
    // It takes localhost:8080.
    kubectl: /localhost:8080/,
    ksvm: /server "" is not an http or https URL/,
  },
  {
    name: "a --kubeconfig that does not exist",
    files: { config: first },
    flags: { kubeconfig: "gone" },
    kubectl: /gone: no such file/,
    ksvm: /Cannot load kubeconfig ".*gone"/,
  },
  {
    name: "a --context that does not exist",
    files: { config: first },
    flags: { context: "gone" },
    kubectl: /context "gone" does not exist/,
    ksvm: /Cannot use context "gone": .* has "a"/,
  },
  {
    name: "a proxy of an unknown kind",
    files: { config: kubeconfig({ "proxy-url": "ftp://127.0.0.1:1" }, { token: "a" }) },
    kubectl: /unsupported scheme "ftp"/,
    ksvm: /is not the URL of an http, https or socks5 proxy/,
  },
  {
    name: "HTTPS_PROXY of a proxy whose certificate no one trusts",
    files: { config: kubeconfig({ server: BY_NAME }, { token: "a" }) },
    variables: () => ({ HTTPS_PROXY: `https://127.0.0.1:${strangeProxy.port}` }),
    kubectl: /certificate signed by unknown authority/,
    ksvm: /^[^\n]*Cannot GET \/version: no trusted connection to [^\n]*proxy 127\.0\.0\.1:\d+[^\n]*certificate[^\n]*$/,
  },
  {
    name: "an exec plugin that is missing",
    files: { config: kubeconfig({}, exec({ command: "ksvm-no-such-plugin", installHint: "get it at example.com" })) },
    kubectl: /executable ksvm-no-such-plugin not found[^]*get it at example\.com/,
    ksvm: /executable "ksvm-no-such-plugin" not found[^]*get it at example\.com/,
  },
  {
    name: "an exec plugin that fails",
    files: { config: kubeconfig({}, exec()), "bin/plugin": FAILING },
    kubectl: /log in first[^]*failed with exit code 3/,
    ksvm: /failed with exit code 3: log in first/,
  },
  {
    name: "an exec plugin that must ask where there is no terminal",
    files: { config: kubeconfig({}, exec({ interactiveMode: "Always" })), "bin/plugin": FAILING },
    kubectl: /standard input is not a terminal/,
    ksvm: /must ask the user \(interactiveMode: Always\), and there is no terminal/,
  },
  {
    name: "an exec without interactiveMode",
    files: { config: kubeconfig({}, exec({ interactiveMode: "" })) },
    kubectl: /interactiveMode must be specified/,
    ksvm: /exec has no interactiveMode/,
  },
  {
    name: "auth-provider azure",
    files: { config: kubeconfig({}, { "auth-provider": { name: "azure" } }) },
    kubectl: /The azure auth plugin has been removed/,
    ksvm: /"azure" was removed from kubectl/,
  },
  {
    name: "auth-provider gcp",
    files: { config: kubeconfig({}, { "auth-provider": { name: "gcp" } }) },
    kubectl: /The gcp auth plugin has been removed/,
    ksvm: /"gcp" was removed from kubectl/,
  },
];

for (const { kubectl: said, ksvm, ...row } of refusedCases) {
  await t.test(`kubectl and ksvm refuse ${row.name}`, async (t) => {
    const { byKubectl, byKsvm } = await askBoth(t, row);
    t.match(byKubectl.error, said);
    t.match(byKsvm.error, ksvm);
    t.same([byKubectl.seen, byKsvm.seen], [[], []]);
  });
}

await t.test("ksvm refuses auth-provider oidc, which kubectl has", async (t) => {
  const config = kubeconfig({}, { "auth-provider": { name: "oidc", config: { "id-token": "a" } } });
  const { byKsvm } = await askBoth(t, { name: "", files: { config } });
  t.match(byKsvm.error, /auth-provider "oidc" is not supported, as each renewal would have to rewrite the kubeconfig/);
  t.same(byKsvm.seen, []);
});

await t.test("ksvm is anonymous where the context has no user; kubectl asks for a user name", async (t) => {
  const config = kubeconfig({}, undefined).replace("user: x", "user: ''");
  const { byKubectl, byKsvm } = await askBoth(t, { name: "", files: { config } });
  t.match(byKubectl.error, /EOF/);
  t.same(byKsvm, { seen: [{ path: "/version", headers: {}, client: undefined }], proxied: [], error: undefined });
});

await t.test("ksvm expects an https proxy to show its own name, kubectl tls-server-name", async (t) => {
  const own = await issueSelfSigned({
    dnsNames: ["proxy.test"],
    ipAddresses: ["127.0.0.1"],
    now: new Date(),
    lifetimeMs: 3_600_000,
  });
  const { asked, port } = await recordingProxy(t, own);
  const config = kubeconfig(
    {
      server: BY_NAME,
      "tls-server-name": NAME,
      "proxy-url": `https://127.0.0.1:${port}`,
      "certificate-authority-data": encoded(tls.caPem + own.caPem),
    },
    { token: "a" },
  );
  const { byKubectl, byKsvm } = await askBoth(t, { name: "", files: { config } });
  t.match(byKubectl.error, /certificate is valid for proxy\.test, not ksvm\.test/);
  t.equal(byKsvm.error, undefined);
  t.same([byKubectl.seen.length, byKsvm.seen.length, asked.length], [0, 1, 1]);
});
