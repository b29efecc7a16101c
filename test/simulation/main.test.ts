import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import tap, { type Test } from "tap";
import { endWithThisProcess } from "../processes/watchdog.ts";
import { planOf } from "./plan-of.ts";

// With other tests beside it on a slow machine.
tap.setTimeout(900_000);

const main = fileURLToPath(new URL("main.ts", import.meta.url));
/** Found within a few seeds. */
const MUTATION = "prune although objects failed";

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function start(t: Test, args: readonly string[]): { readonly child: ChildProcess; readonly ended: Promise<Ended> } {
  const child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  endWithThisProcess(child);
  t.teardown(() => child.kill("SIGKILL"));
  const code = new Promise<number | null>((done, fail) => child.on("error", fail).on("close", done));
  const ended = Promise.all([code, text(child.stdout), text(child.stderr)]);
  return { child, ended: ended.then(([code, stdout, stderr]) => ({ code, stdout, stderr })) };
}

/** Waits until some seeds are played. */
async function begun(resumeFile: string): Promise<void> {
  for (;;) {
    await setTimeout(100);
    if (existsSync(resumeFile) && stateOf(resumeFile).seeds.next > 1) return;
  }
}

function stateOf(resumeFile: string): { readonly seeds: { next: number; count: number; open: number[] } } {
  return JSON.parse(readFileSync(resumeFile, "utf8")) as ReturnType<typeof stateOf>;
}

function folderOf(t: Test): string {
  const dir = mkdtempSync(join(tmpdir(), "ksvm-simulate-"));
  t.teardown(() => rmSync(dir, { recursive: true }));
  return dir;
}

await tap.test("what cannot be played gets one line and exit code 2", async (t) => {
  const file = join(folderOf(t), "plan.json");
  writeFileSync(file, JSON.stringify({ ...planOf(1), actions: [{ at: 0, do: "explode" }] }));
  const refusals = [
    [["--seeds", "abc"], /^SEEDS has to be a whole number, 1 or more: "abc"\n$/],
    [["--plan", "/nowhere.json"], /^Cannot read the plan "\/nowhere\.json": ENOENT[^\n]*\n$/],
    [["--plan", file], /^Cannot play the plan "[^\n]*": there is no action "explode"; there are: flip, [^\n]*\n$/],
    [["--seeds", "1", "--mutation", "be nice"], /^There is no mutation "be nice"[^\n]*\n$/],
  ] as const;
  for (const [args, message] of refusals) {
    const { code, stdout, stderr } = await start(t, args).ended;
    t.match(stderr, message);
    t.same({ code, stdout }, { code: 2, stdout: "" }, args.join(" "));
  }
});

await tap.test("a seed that breaks something is named, shortened, saved, and played again from its file", async (t) => {
  const out = folderOf(t);
  const many = start(t, ["--seeds", "200", "--stop", "--mutation", MUTATION, "--out", out, "--workers", "2"]);
  const { code, stdout } = await many.ended;
  t.equal(code, 1);
  t.match(stdout, /^SEED=\d+: S1: /);
  const [, seed = "", left = "", all = ""] =
    /SEED=(\d+) broke.*: S1: [^]*The shortest plan that breaks it too has (\d+) of (\d+) actions/.exec(stdout) ?? [];
  t.ok(Number(left) < Number(all), `${left} of ${all}`);
  t.match(stdout, /\nBROKEN: S1: /);
  const file = join(out, `seed-${seed}.json`);
  t.match(JSON.parse(readFileSync(file, "utf8")), { violation: /^S1: /, fromSeed: Number(seed) });
  const mutated = await start(t, ["--plan", file, "--mutation", MUTATION]).ended;
  t.equal(mutated.code, 1);
  t.ok(stdout.includes(mutated.stdout.trim()), "the same trace, in another process");
  const right = await start(t, ["--plan", file]).ended;
  t.equal(right.code, 0);
  t.match(right.stdout, /\nnothing broke \(/);
});

await tap.test("Ctrl-C ends a play and tells what was done, and RESUME goes on where it was", async (t) => {
  const file = join(folderOf(t), "resume.json");
  const args = ["--seeds", "40", "--workers", "2", "--resume", file];
  const first = start(t, ["--seeds", "1000000", "--workers", "2", "--resume", file]);
  await begun(file);
  first.child.kill("SIGINT");
  const stopped = await first.ended;
  t.equal(stopped.code, 130);
  t.match(stopped.stdout, /^[\d,]+ seeds in \d+ s: \d+ broken, /);
  const other = await start(t, args).ended;
  t.equal(other.code, 2);
  t.match(
    other.stderr,
    /^Cannot continue from "[^\n]*": it is of 1000000 seeds from 1, and not of 40 from 1; [^\n]*\n$/,
  );
  const state = stateOf(file);
  const done = state.seeds.next - 1 - state.seeds.open.length;
  // As if it had been of fewer seeds.
  state.seeds.count = state.seeds.next + 3;
  writeFileSync(file, JSON.stringify(state));
  const again = await start(t, ["--seeds", `${state.seeds.count}`, "--workers", "2", "--resume", file]).ended;
  t.match(again.stdout, new RegExp(`^Continuing from "[^\n]*": ${done} of ${state.seeds.count} seeds are played\n`));
  t.ok(again.stdout.replaceAll(",", "").includes(`\n${state.seeds.count} seeds in `), again.stdout);
  t.notOk(existsSync(`${file}.new`));
});
