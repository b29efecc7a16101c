import { join } from "node:path";
import { pathToFileURL } from "node:url";
import tap from "tap";
import { runExecPlugin } from "../../../../src/old/kube/connect/exec-plugin.ts";
import { startProgram } from "../../../processes/program.ts";

const MODULE = pathToFileURL(join(import.meta.dirname, "../../../../src/old/kube/connect/exec-plugin.ts")).href;
const spec = {
  apiVersion: "client.authentication.k8s.io/v1",
  command: process.execPath,
  interactiveMode: "IfAvailable",
};
const cluster = { server: "https://192.0.2.1:6443", config: null };

/** Asks for a second factor as a plugin does: on stderr, with the answer on stdin. */
const ASKING = `
import { readFileSync } from "node:fs";
const { interactive } = JSON.parse(process.env.KUBERNETES_EXEC_INFO).spec;
console.error("code, please");
const token = interactive ? readFileSync(0, "utf8").trim() : "nobody to ask";
console.log(JSON.stringify({ apiVersion: "${spec.apiVersion}", kind: "ExecCredential", status: { token } }));
`;

/** A program that says that its stdin is a terminal. */
const program = (plugin: string, interactiveMode: string): string => `
import { runExecPlugin } from ${JSON.stringify(MODULE)};
const spec = ${JSON.stringify({ ...spec, args: [plugin], interactiveMode })};
const environment = { variables: process.env, isTerminal: true };
const signal = new AbortController().signal;
const { token } = await runExecPlugin(spec, { environment, cluster: ${JSON.stringify(cluster)}, signal });
console.log(token);
`;

for (const [mode, token] of [
  ["IfAvailable", "123456"],
  ["Never", "nobody to ask"],
] as const) {
  await tap.test(`runExecPlugin() lets a plugin ask on a terminal, with interactiveMode ${mode}`, async (t) => {
    const folder = t.testdir({ "plugin.mjs": ASKING });
    const args = ["--input-type=module", "--eval", program(join(folder, "plugin.mjs"), mode)];
    const { stdout, stderr } = await startProgram(t, process.execPath, args, { input: "123456\n" }).ended;
    t.equal(stdout, `${token}\n`, stderr);
    t.match(stderr, /code, please/, "the user sees the question");
  });
}

await tap.test("runExecPlugin() ends a plugin that takes too long", async (t) => {
  const environment = { variables: process.env, isTerminal: false };
  const hanging = { ...spec, args: ["--eval", "setInterval(() => undefined, 1000)"] };
  const { signal } = new AbortController();
  const run = runExecPlugin(hanging, { environment, cluster, signal, timeoutMs: 100 });
  await t.rejects(run, { message: /did not end within 0\.1 s/ });
});

await tap.test("runExecPlugin() quotes nothing of an output that it cannot read, not even as a cause", async (t) => {
  const environment = { variables: process.env, isTerminal: false };
  const printing = { ...spec, args: ["--eval", "console.log('not-to-be-seen, the token')"] };
  const { signal } = new AbortController();
  const error = await runExecPlugin(printing, { environment, cluster, signal }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  t.match(error, { message: /it printed no JSON/ });
  for (let cause = error; cause instanceof Error; cause = cause.cause) t.notMatch(cause.message, "not-to-be-seen");
});

await tap.test("runExecPlugin() takes nothing but credentials of the version that was asked for", async (t) => {
  const environment = { variables: process.env, isTerminal: false };
  const { signal } = new AbortController();
  const printing = (value: unknown) =>
    runExecPlugin(
      { ...spec, args: ["--eval", `console.log(${JSON.stringify(JSON.stringify(value))})`] },
      { environment, cluster, signal },
    );
  const credential = { apiVersion: spec.apiVersion, kind: "ExecCredential" };
  const cases: readonly [value: unknown, words: RegExp][] = [
    [null, /nothing/],
    [{ ...credential, apiVersion: "client.authentication.k8s.io/v1beta1", status: { token: "a" } }, /v1beta1/],
    [credential, /neither a token nor a client certificate/],
    [{ ...credential, status: { token: "a", clientKeyData: "b" } }, /a key without its certificate/],
  ];
  for (const [value, words] of cases) await t.rejects(printing(value), { message: words });
  const expirationTimestamp = "2026-01-01T00:00:00Z";
  const issued = await printing({ ...credential, status: { token: "a", expirationTimestamp } });
  t.match(issued, { token: "a", expiresAt: Date.parse(expirationTimestamp) });
});
