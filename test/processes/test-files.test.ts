import { writeFileSync } from "node:fs";
import { join } from "node:path";
import tap, { type Test } from "tap";
import { SharedControlPlanes } from "../control-plane/shared.ts";
import { TestFiles } from "./test-files.ts";

const TAP = JSON.stringify(import.meta.resolve("tap"));

/** What it prints, which is no part of what this file prints: "not ok" is a line of TAP. */
function capture(t: Test): readonly string[] {
  const lines: string[] = [];
  const { log } = console;
  console.log = (line: string) => void lines.push(line);
  t.teardown(() => (console.log = log));
  return lines;
}

/** Runs one file with this text. */
async function run(t: Test, text: string, timeoutSeconds = 60) {
  const file = join(t.testdir(), "some.test.ts");
  writeFileSync(file, text);
  const lines = capture(t);
  const files = new TestFiles(t.testdirName, process.env, new SharedControlPlanes());
  const [counts] = await files.run([file], { jobs: 1, timeoutSeconds });
  const failures = files.failures.map((name) => name.slice(file.length));
  return { counts, output: lines.join("\n"), failures };
}

await tap.test("each test directly in a file counts, what they nest does not", async (t) => {
  const { counts, output } = await run(
    t,
    `import t from ${TAP};
    await t.test("one", async (t) => { t.pass("a"); t.pass("b"); });
    await t.test("two", { skip: "why" }, async () => {});`,
  );
  t.match(counts, { passed: 1, failed: 0, skipped: 1 });
  t.match(output, /^PASS .*some\.test\.ts \(2 tests/);
});

await tap.test("negative control: a test that fails is counted and shown with its diagnostics", async (t) => {
  const { counts, failures, output } = await run(
    t,
    `import t from ${TAP};
    await t.test("one", async (t) => t.pass());
    await t.test("two", async (t) => t.equal(1, 2, "as one"));`,
  );
  t.match(counts, { passed: 1, failed: 1, skipped: 0 });
  t.match(output, /not ok .*two > as one\n/);
  t.match(output, /FAIL .*some\.test\.ts \(2 tests/);
  t.same(failures, [" > two"]);
});

const BROKEN = [
  ["has no test", "", "no test ran"],
  ["fails to load", 'import "./missing.ts";', "no test ran"],
] as const;

for (const [what, text, why] of BROKEN) {
  await tap.test(`negative control: a file that ${what} is a failed test`, async (t) => {
    const { counts, failures, output } = await run(t, text);
    t.equal(counts?.failed, 1);
    t.same(failures, [` > ${why}`]);
    t.match(output, why);
    t.match(output, /FAIL .*some\.test\.ts/);
  });
}

await tap.test("negative control: an error that nobody catches fails the file", async (t) => {
  const wait = "await new Promise((resolve) => setTimeout(resolve, 200));";
  for (const error of ['setTimeout(() => { throw new Error("lost"); });', 'void Promise.reject(new Error("lost"));']) {
    const { counts } = await run(
      t,
      `import t from ${TAP}; await t.test("one", async (t) => { ${error} ${wait} t.pass(); });`,
    );
    t.equal(counts?.failed, 1, error);
  }
});

await tap.test("a file ends after its timeout, also one that is in an endless loop", async (t) => {
  const wait = `import t from ${TAP}; await t.test("waits", () => new Promise(() => setInterval(() => {}, 1_000)));`;
  for (const text of [wait, "for (;;);"]) {
    const { counts } = await run(t, text, 2);
    t.equal(counts?.failed, 1);
  }
});

await tap.test("what is interrupted ends, and what was not run yet fails", async (t) => {
  capture(t);
  const dir = t.testdir({ "some.test.ts": "setInterval(() => {}, 1_000);" });
  const file = join(dir, "some.test.ts");
  const files = new TestFiles(dir, process.env, new SharedControlPlanes());
  const ended = files.run([file, file], { jobs: 1, timeoutSeconds: 60 });
  t.equal(files.interrupt("SIGTERM"), true);
  t.same(
    (await ended).map(({ failed }) => failed),
    [1, 1],
  );
  t.equal(files.interrupt("SIGTERM"), false);
});
