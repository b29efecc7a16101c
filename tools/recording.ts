// Records ksvm in a terminal on a real API server, as docs/images/demo.svg: node tools/recording.ts
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { runScript, say } from "../bench/run-script.ts";
import { withCluster } from "../bench/with-cluster.ts";
import { ensureBinaries } from "../test/control-plane/binaries.ts";
import { bundle } from "./build.ts";
import { TestKind } from "../test/integration/crd-fixture.ts";
import { RunningProgram } from "../test/processes/program.ts";
import { Screen } from "../test/terminal/screen.ts";
import { type Frame, recordingOf } from "./recording-svg.ts";

/** With a name that reads well. */
class Widgets extends TestKind {
  override readonly plural = "widgets";
  override readonly kind = "Widget";
}

const OUT = new URL("../docs/images/demo.svg", import.meta.url);
const OBJECTS = 5_000;
const COLUMNS = 104;
const ROWS = 28;
/** Until writes of the old version have landed, and an API server counts as one that has been there all along. */
const SETTLED_MS = 70_000;
/** A frame for each of these milliseconds at most; a pause is shown no longer than the longest. */
const FRAME_MS = 150;
const LONGEST_MS = 1_500;

await runScript(async (signal) => {
  const program = await bundle();
  const { kubectl } = await ensureBinaries(["kubectl"]);
  await withCluster({ signal }, async (cluster) => {
    const kind = new Widgets("widget");
    await cluster.createStale(kind, OBJECTS);
    say("waiting until the change of the storage version is over a minute old");
    await sleep(SETTLED_MS, undefined, { signal });
    const folder = mkdtempSync(join(tmpdir(), "ksvm-recording-"));
    try {
      const bin = `ksvm() { "${process.execPath}" "${program}" "$@"; }; kubectl() { "${kubectl}" "$@"; }`;
      const commands = [
        `kubectl get crd ${kind.name} -o jsonpath='{.status.storedVersions}{"\\n"}'`,
        `ksvm migrate ${kind.name}`,
        `kubectl get crd ${kind.name} -o jsonpath='{.status.storedVersions}{"\\n"}'`,
      ];
      const lines = commands.map((command) => `printf '\\033[32m$\\033[39m %s\\n' ${quoted(command)}; sleep 1; ${command}; sleep 1`);
      writeFileSync(join(folder, "session.sh"), [bin, `stty cols ${COLUMNS} rows ${ROWS}`, ...lines].join("\n"));
      const [out, timing] = [join(folder, "out"), join(folder, "timing")];
      const args = ["-qec", `bash ${join(folder, "session.sh")}`, "--log-out", out, "--log-timing", timing];
      const env = { ...process.env, KUBECONFIG: cluster.kubeconfig, TERM: "xterm-256color", NODE_OPTIONS: "" };
      const { code, stdout } = await new RunningProgram("script", args, { env, timeoutMs: 120_000 }).ended;
      if (code !== 0) throw new Error(`Cannot record: ${stdout}`);
      const frames = framesOf(readFileSync(out), readFileSync(timing, "utf8"));
      writeFileSync(OUT, recordingOf(frames, { columns: COLUMNS, title: "ksvm migrates a CustomResourceDefinition" }));
      say(`${frames.length} frames`);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** What the terminal showed, and for how long. `script` writes a line of its own before and after the session. */
function framesOf(log: Buffer, timing: string): readonly Frame[] {
  const screen = new Screen(COLUMNS);
  const decoder = new TextDecoder();
  const frames: Frame[] = [];
  let at = log.indexOf("\n") + 1;
  let heldMs = 0;
  for (const line of timing.trim().split("\n")) {
    const [delay = "0", bytes = "0"] = line.split(" ");
    heldMs += Math.min(Number(delay) * 1_000, LONGEST_MS);
    if (heldMs >= FRAME_MS) {
      frames.push({ lines: screen.lines, ms: heldMs });
      heldMs = 0;
    }
    screen.write(decoder.decode(log.subarray(at, at + Number(bytes)), { stream: true }).replaceAll("\r\n", "\n"));
    at += Number(bytes);
  }
  return [...frames, { lines: screen.lines, ms: 5_000 }];
}
