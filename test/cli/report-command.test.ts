import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { join } from "node:path";
import tap from "tap";
import { runProgram } from "../../src/cli/program.ts";
import { resultLine } from "../report/report-samples.ts";

async function report(args: readonly string[], isTTY = false): Promise<{ code: number; stderr: string }> {
  const [stdout, stderr] = [Object.assign(new PassThrough(), { isTTY }), new PassThrough()];
  const said = text(stderr);
  const { signal } = new AbortController();
  const code = await runProgram(["report", ...args, "--kubeconfig", "/nowhere"], { stdout, stderr, signal });
  stderr.end();
  return { code, stderr: await said };
}

await tap.test("report refuses what it cannot use in one line, before it looks for a cluster", async (t) => {
  const dir = t.testdir({ "plan.txt": "NAME  STORAGE\n", "run.json": `${resultLine("w")}\n`, none: {} });
  const cases: readonly [args: readonly string[], code: number, stderr: RegExp][] = [
    [["--evidence", join(dir, "no")], 1, /^error: Cannot read .*no: ENOENT.* \[EvidenceInvalid\]\n$/],
    [["--evidence", join(dir, "none")], 1, /^error: Cannot read .*none: the directory .* \[EvidenceInvalid\]\n$/],
    [["--evidence", join(dir, "plan.txt")], 1, /^error: Cannot use .*plan\.txt, line 1: it is not JSON.*\n$/],
    [["--evidence", "-"], 1, /^error: Cannot read stdin: there is none \[EvidenceInvalid\]\n$/],
    [["a/b"], 2, /^error: Cannot use "a\/b": it is a subresource.*\n$/],
    [["--evidence", join(dir, "run.json")], 1, /\[KubeconfigInvalid\]\n$/],
  ];
  for (const [args, code, stderr] of cases) {
    const end = await report(args);
    t.match(end, { code, stderr }, args.join(" "));
  }
});

await tap.test("report does not fill a terminal, unless a user asks for that", async (t) => {
  t.match(await report([], true), {
    code: 2,
    stderr: /^error: Cannot show an HTML page on a terminal: .* \[Usage\]\n$/,
  });
  t.match(await report(["--output-file", "-"], true), { code: 1, stderr: /\[KubeconfigInvalid\]/ });
  t.match(await report([]), { code: 1, stderr: /\[KubeconfigInvalid\]/ });
});
