import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

import tap from "tap";

import { Interruption } from "../../src/cli/shared/interruption.ts";
import { programNameOf, runProgram } from "../../src/cli/program.ts";
import { type ProgramEnd, startKsvm } from "../processes/program.ts";
import {
  groupList,
  kubeconfigFor,
  resourceList,
  type SeenRequest,
  sendJson,
  sendStatus,
  startServer,
} from "../kube/local-server.ts";

async function run(args: readonly string[], signal: AbortSignal = new AbortController().signal): Promise<ProgramEnd> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const texts = Promise.all([text(stdout), text(stderr)]);
  const code = await runProgram(args, { stdout, stderr, signal });
  stdout.end();
  stderr.end();
  const [out, err] = await texts;
  return { code, stdout: out, stderr: err };
}

type Tap = Parameters<typeof startServer>[0] & { testdir(content: Record<string, string>): string };

function kubeconfig(t: Tap, server: string): string {
  return join(t.testdir({ config: kubeconfigFor(server) }), "config");
}

const NOBODY = "http://127.0.0.1:1";

await tap.test("Supported: runProgram() ends with 1 and one line when the API server is too old", async (t) => {
  // The oldest API server that the tests can start is newer.
  const server = await startServer(t, (_, response) => sendJson(response, 200, { gitVersion: "v1.31.15" }));
  const widgets = "widgets.example.com";
  const commands = [["plan"], ["migrate", widgets], ["init"], ["status"], ["unfreeze", widgets]];
  for (const command of commands) {
    t.same(await run([...command, "--kubeconfig", kubeconfig(t, server.url)]), {
      code: 1,
      stdout: "",
      stderr:
        `error: Cannot work with ${server.url}: it runs Kubernetes v1.31.15, and 1.32 or newer is needed ` +
        "[ServerUnsupported]\n",
    });
  }
  t.same(
    server.seen.map(({ method, path }) => `${method} ${path}`),
    commands.map(() => "GET /version"),
    "nothing else was asked, nothing was changed",
  );
});

// Each before anything is sent, or at the first answer.
const failures: readonly [name: string, args: readonly string[], code: number, stderr: RegExp][] = [
  [
    "nobody listens",
    ["plan"],
    1,
    /^error: Cannot GET \/version: no answer from .*ECONNREFUSED.* \[ServerUnreachable\]\n$/,
  ],
  [
    "the context is unknown",
    ["plan", "--context", "prod"],
    1,
    /^error: Cannot use the kubeconfig: there is no context "prod"; there are "local" \[KubeconfigInvalid\]\n$/,
  ],
  ["a flag is unknown", ["plan", "--nope"], 2, /^error: unknown option '--nope' \[Usage\]\n$/],
  ["a command is unknown", ["nope"], 2, /^error: unknown command 'nope' \[Usage\]\n$/],
  [
    "an output is unknown",
    ["plan", "-o", "xml"],
    2,
    /^error: Cannot use --output "xml": expected one of: table, wide, name, json, yaml \[Usage\]\n$/,
  ],
  [
    "a duration is none",
    ["migrate", "a.b", "--settle", "65"],
    2,
    /^error: Cannot use --settle "65": expected a duration such as .* \[Usage\]\n$/,
  ],
  [
    "the wait is shorter than a request may run",
    ["migrate", "a.b", "--settle", "60s"],
    2,
    /^error: Cannot use --settle 1m: a request may run for 60 s, .* use --unsafe-settle 1m \[Usage\]\n$/,
  ],
  ["nothing may be in flight", ["migrate", "a.b", "--max-in-flight", "0"], 2, /expected a whole number from 1 to 256/],
  ["a rate is below 0", ["migrate", "a.b", "--max-qps", "-1"], 2, /^error: /],
  [
    "an endpoint is no https URL",
    ["migrate", "a.b", "--apiserver-endpoints", "a"],
    2,
    /expected a comma-separated list of https URLs/,
  ],
  [
    "a status output is unknown",
    ["status", "-o", "wide"],
    2,
    /^error: Cannot use --output "wide": expected one of: table, name, json, yaml/,
  ],
  [
    "an init output is unknown",
    ["init", "-o", "table"],
    2,
    /^error: Cannot use --output "table": expected one of: text, json, yaml/,
  ],
  ["a command is misspelled", ["plann"], 2, /^error: unknown command 'plann' \(Did you mean plan\?\) \[Usage\]\n$/],
  [
    "roles are to be printed for what is no resource",
    ["rbac", "a.b", "Widgets"],
    2,
    /^error: Cannot print roles for "Widgets": expected .* \[Usage\]\n$/,
  ],
  ["whom to impersonate is blank", ["plan", "--as", " "], 2, /^error: Cannot use --as " ": expected a text that is/],
  [
    "whom to impersonate is empty",
    ["plan", "--as", ""],
    2,
    /^error: Cannot use --as "": expected a text that is not empty/,
  ],
  [
    "a URL with a password is none that a flag takes",
    ["migrate", "a.b", "--apiserver-endpoints", "https://jane:secret@host:1"],
    2,
    /^error: Cannot use --apiserver-endpoints "https:\/\/…@host:1": /,
  ],
  ["init is given a name", ["init", "widgets.example.com"], 2, /^error: too many arguments for 'init'/],
  ["unfreeze is given no name", ["unfreeze"], 2, /^error: missing required argument 'name'/],
  ["unfreeze is given two names", ["unfreeze", "a.b", "c.d"], 2, /^error: too many arguments for 'unfreeze'/],
  ["a group is to be impersonated alone", ["plan", "--as-group", "a"], 2, /^error: .*: pass --as as well \[Usage\]\n$/],
  ["a server is no URL", ["plan", "--server", "ftp://a"], 2, /^error: Cannot use --server "ftp:.*such as "https:/],
  [
    "a shell is unknown",
    ["completion", "csh"],
    2,
    /^error: Cannot complete for "csh": expected bash, zsh or fish \[Usage\]\n$/,
  ],
  ["reencrypt is given nothing", ["reencrypt"], 2, /\[Usage\]\n$/],
  ["reencrypt is given all and a name", ["reencrypt", "--all", "secrets"], 2, /\[Usage\]\n$/],
  ["the digest of a configuration is none", ["reencrypt", "--expect-config", "abc", "secrets"], 2, /\[Usage\]\n$/],
  [
    "a configuration is expected of API servers that are not asked",
    ["reencrypt", "secrets", "--assume-config-rolled-out", "--expect-config", "a".repeat(64)],
    2,
    /\[Usage\]\n$/,
  ],
  ["no name is given", ["migrate"], 2, /^error: Cannot tell what to migrate: .* \[Usage\]\n$/],
  ["a name and --all are given", ["migrate", "a.b", "--all"], 2, /\[Usage\]\n$/],
  [
    "the controller is to issue certificates that outlive their CA",
    ["controller", "--serving-lifetime=8760h"],
    2,
    /^error: Cannot use these lifetimes: --serving-lifetime \(8760h\) must fit into .* \(2920h\) \[Usage\]\n$/,
  ],
];

for (const [name, args, code, stderr] of failures) {
  await tap.test(`runProgram() ends with ${code} when ${name}`, async (t) => {
    const withConfig = name.startsWith("a command is") ? args : [...args, "--kubeconfig", kubeconfig(t, NOBODY)];
    const result = await run(withConfig);
    t.equal(result.code, code);
    t.equal(result.stdout, "");
    t.match(result.stderr, stderr);
    t.equal(result.stderr.trimEnd().split("\n").length, 1, "one line");
    t.notMatch(result.stderr, /\n\s+at /, "no stack");
  });
}

await tap.test("runProgram() ends with 1 when the kubeconfig does not exist", async (t) => {
  const { code, stderr } = await run(["plan", "--kubeconfig", join(t.testdir({}), "missing")]);
  t.equal(code, 1);
  t.match(stderr, /^error: Cannot use the kubeconfig: ".*missing" cannot be read: ENOENT.* \[KubeconfigInvalid\]\n$/);
});

await tap.test("runProgram() ends with 1 when the API server refuses the user", async (t) => {
  // The first 401 makes it authenticate again.
  const answers = [401, 401, 403];
  const server = await startServer(t, (_, response) => sendStatus(response, answers.shift() ?? 500, { message: "no" }));
  t.match(await run(["plan", "--kubeconfig", kubeconfig(t, server.url)]), { code: 1, stderr: /\[Unauthorized\]\n$/ });
  t.match(await run(["plan", "--kubeconfig", kubeconfig(t, server.url)]), { code: 1, stderr: /\[Forbidden\]\n$/ });
});

await tap.test("ksvm help shows the help of a command of two words", async (t) => {
  t.match((await run(["help", "migrate", "-f"])).stdout, /^Usage: ksvm migrate /);
  const { code, stdout } = await run(["help", "certs", "ensure"]);
  t.equal(code, 0);
  t.match(stdout, /^Usage: ksvm certs ensure /);
});

const helps: readonly (readonly string[])[] = [
  ["--help"],
  ...["plan", "migrate", "init", "status", "unfreeze"].map((command) => [command, "--help"]),
];

for (const args of helps) {
  await tap.test(`runProgram() ends with 0 when asked for ${args.join(" ")}`, async (t) => {
    const { code, stdout, stderr } = await run(args);
    t.equal(code, 0);
    t.match(stdout, /^Usage: ksvm/);
    t.equal(stderr, "");
  });
}

await tap.test("requests are sent for the user of --as, to the server of --server", async (t) => {
  const server = await startServer(t, (_, response) => sendStatus(response, 403, {}));
  const flags = ["--as", "jane", "--as-group", "a", "--as-group", "b", "--as-uid", "7", "--server", server.url];
  await run(["plan", ...flags, "--kubeconfig", kubeconfig(t, NOBODY)]);
  t.match(server.seen[0]?.headers, { "impersonate-user": "jane", "impersonate-uid": "7", "impersonate-group": "a, b" });
});

await tap.test("the usage has the name that the program was called by", async (t) => {
  t.equal(programNameOf("/usr/local/bin/kubectl-ksvm"), "kubectl ksvm");
  t.equal(programNameOf("/usr/local/bin/ksvm"), "ksvm");
  t.equal(programNameOf("/opt/ksvm/dist/ksvm.js"), "ksvm");
  const stdout = new PassThrough();
  const printed = text(stdout);
  const io = { stdout, stderr: new PassThrough(), signal: new AbortController().signal };
  await runProgram(["help", "migrate"], io, "kubectl ksvm");
  stdout.end();
  t.match(await printed, /^Usage: kubectl ksvm migrate .*^Advanced options:$.*^Examples:\n {2}kubectl ksvm migrate /ms);
});

await tap.test("main.ts ends with 2 and one line when the arguments are wrong", async (t) => {
  const { code, stdout, stderr } = await startKsvm(t, ["migrate"]).ended;
  t.equal(code, 2);
  t.equal(stdout, "");
  t.match(stderr, /^error: [^\n]* \[Usage\]\n$/);
});

/** A server that calls `interrupt` at the first request that `answer` has no answer to. */
async function interrupting(t: Tap, answer: (request: SeenRequest) => unknown, interrupt: () => unknown) {
  let interrupted = false;
  const server = await startServer(t, async (request, response) => {
    const body = answer(request);
    if (body !== undefined) return sendJson(response, 200, body);
    if (!interrupted) {
      interrupted = true;
      return interrupt();
    }
    // Whatever comes after the interruption is refused, and what was asked together with the first not before it.
    await sleep(50);
    return sendStatus(response, 403, {});
  });
  return ["--kubeconfig", kubeconfig(t, server.url)];
}

const VERSION = { gitVersion: "v1.36.0" };

/** Nothing but /version: a controller, too, is looked for in vain. */
function version({ path }: SeenRequest): unknown {
  return path === "/version" ? VERSION : undefined;
}

/** A cluster in which a controller leads, up to the moment when a migration is to be created. */
function controllerRunning(): (request: SeenRequest) => unknown {
  let renewals = 0;
  return (request) => {
    if (request.path.includes("/leases/")) {
      const metadata = { name: request.path.split("/").at(-1) };
      return { metadata, spec: { holderIdentity: "a", leaseDurationSeconds: 15, renewTime: `${renewals++}` } };
    }
    const group = "migration.k8s.io/v1alpha1";
    const discovery: Readonly<Record<string, object>> = {
      "/apis": groupList(group),
      [`/apis/${group}`]: resourceList(group, "storageversionmigrations"),
    };
    return discovery[request.path] ?? version(request);
  };
}

const FREEZE = ", which may leave a freeze behind";
const ENDING = "shutting down (send SIGTERM again to force)";
const FREEZING_ENDING = `shutting down (send SIGTERM again to force${FREEZE})`;
const LOGGED = "Received a signal, shutting down; a second signal forces it";
const CRD = "widgets.example.com";

const interruptions: readonly [
  name: string,
  args: readonly string[],
  answer: (request: SeenRequest) => unknown,
  line: string,
][] = [
  ["plan", ["plan"], version, ENDING],
  ["migrate", ["migrate", CRD, "--standalone"], version, FREEZING_ENDING],
  ["migrate --dry-run", ["migrate", CRD, "--dry-run"], version, ENDING],
  ["migrate that follows a controller", ["migrate", CRD], controllerRunning(), ENDING],
];

for (const [name, args, answer, line] of interruptions) {
  await tap.test(`runProgram() says what a second signal does to ${name}`, async (t) => {
    const interruption = new AbortController();
    const flags = await interrupting(t, answer, () => interruption.abort(new Interruption("SIGTERM")));
    const { code, stderr } = await run([...args, ...flags], interruption.signal);
    t.equal(code, 130);
    const [first, ...rest] = stderr.trimEnd().split("\n");
    t.equal(first, `Received SIGTERM, ${line}`);
    t.ok(rest.length <= 1 && rest.every((text) => /^error: Interrupted.* \[Interrupted\]$/.test(text)), stderr);
  });
}

await tap.test("runProgram() logs an interruption as it logs everything else", async (t) => {
  for (const level of ["warn", "error"]) {
    const interruption = new AbortController();
    const flags = await interrupting(t, version, () => interruption.abort(new Interruption("SIGTERM")));
    const args = ["migrate", CRD, "--standalone", "--log-format", "json", "--log-level", level, ...flags];
    const { code, stderr } = await run(args, interruption.signal);
    t.equal(code, 130);
    const [error = "", ...logged] = stderr.trimEnd().split("\n").toReversed();
    t.match(error, /^error: Interrupted.* \[Interrupted\]$/);
    const line = { level: 40, time: Number, signal: "SIGTERM", forcingMayLeaveFreeze: true, msg: LOGGED };
    t.match(
      logged.map((text): unknown => JSON.parse(text)),
      level === "warn" ? [line] : [],
    );
  }
});

async function interruptProcess(t: Tap, args: readonly string[]): Promise<ProgramEnd> {
  const started: { kill?: () => unknown } = {};
  const flags = await interrupting(t, version, () => started.kill?.());
  const program = startKsvm(t, [...args, ...flags]);
  started.kill = () => program.signal("SIGINT");
  return program.ended;
}

await tap.test("main.ts ends with 130 when it is interrupted", async (t) => {
  const { code, stderr } = await interruptProcess(t, ["plan"]);
  t.equal(code, 130);
  t.match(
    stderr,
    /^Received SIGINT, shutting down \(press Ctrl-C again to force\)\nerror: Interrupted[^\n]* \[Interrupted\]\n$/,
  );
});
