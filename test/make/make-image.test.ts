import { execFileSync } from "node:child_process";
import { chmodSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import tap, { type Test } from "tap";
import { RunningProgram } from "../processes/program.ts";

const ROOT = join(import.meta.dirname, "../..");

const TOOLS = ["sed"] as const;

function pathOf(tool: string): string {
  return execFileSync("sh", ["-c", `command -v ${tool}`], { encoding: "utf8" }).trim();
}

/** A PATH with these engines alone: `info` of each succeeds or fails, and `build` prints what it was called with. */
function pathWith(t: Test, engines: Readonly<Record<string, "works" | "has no daemon">>): string {
  const bin = t.testdir({});
  for (const [name, state] of Object.entries(engines)) {
    const info = state === "works" ? "exit 0" : 'echo "Cannot connect to the daemon" >&2; exit 1';
    const file = join(bin, name);
    writeFileSync(file, `#!/bin/sh\nif [ "$1" = info ]; then ${info}; fi\necho "${name} $*"\n`);
    chmodSync(file, 0o755);
  }
  // What the recipe takes besides, so that no engine of this machine is found.
  for (const tool of TOOLS) symlinkSync(pathOf(tool), join(bin, tool));
  return bin;
}

async function makeImage(t: Test, engines: Parameters<typeof pathWith>[1], ...variables: readonly string[]) {
  const env = { PATH: pathWith(t, engines) };
  return new RunningProgram(pathOf("make"), ["image", ...variables], { cwd: ROOT, env, timeoutMs: 30_000 }).ended;
}

await tap.test("make image takes an engine that works, and not one whose daemon does not answer", async (t) => {
  const made = await makeImage(t, { docker: "has no daemon", buildah: "works" });
  t.match(made, { code: 0, stdout: /^buildah build --tag ksvm:\d+\.\d+\.\d+ \.\n$/ }, made.stderr);
});

await tap.test("make image takes the engine and the name that it is given", async (t) => {
  const made = await makeImage(
    t,
    { docker: "works", podman: "works" },
    "ENGINE=podman",
    "IMAGE=registry.example.com/ksvm:1",
  );
  t.match(made, { code: 0, stdout: "podman build --tag registry.example.com/ksvm:1 .\n" }, made.stderr);
});

await tap.test("make image says in one line what is missing", async (t) => {
  const made = await makeImage(t, { docker: "has no daemon" });
  t.equal(made.code, 2);
  t.match(
    made.stderr,
    /^error: Cannot build the image: none of docker, podman, nerdctl and buildah is installed and works/,
  );
});
