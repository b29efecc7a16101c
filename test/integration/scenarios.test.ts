import t from "tap";
import { testScenario } from "./shown-scenario.ts";
import { commandsOf, isAsShown } from "./transcript.ts";

// Those that take helm are in test/installed.
await testScenario("Dropping v1alpha1");
await testScenario("Objects that are lost");
await testScenario("GitOps", { jobs: { namespace: "crontab-system", count: 1 } });

await t.test("commandsOf() reads the commands of one section, with what each prints", async (t) => {
  const text =
    "# A\n\n## B\n\n```console\n$ one | two\nx\ny\n$ three\n```\n\n```yaml\n$ no\n```\n\n```console\n$ four\nz\n```\n\n## C\n\n```console\n$ five\n```\n";
  t.same(commandsOf(text, "B"), [
    { command: "one | two", output: "x\ny\n" },
    { command: "three", output: "" },
    { command: "four", output: "z\n" },
  ]);
  t.throws(() => commandsOf(text, "D"), /Cannot find a command under "D"/);
});

await t.test("isAsShown() takes other times, ages and addresses, and no other text", async (t) => {
  const shown = "a: proved on https://10.0.0.1:6443\na: 33% 1/3\na: waiting 66s\nNAME   AGE\nb      103s\n";
  const printed = "a: proved on https://127.0.0.1:24413\na: waiting 2s\nNAME   AGE\nb      2m3s\n";
  t.ok(isAsShown(printed, shown));
  t.notOk(isAsShown(printed.replace("proved", "did not prove"), shown));
  t.notOk(isAsShown(`${printed}error: more\n`, shown));
  t.notOk(isAsShown(printed, `${shown}error: more\n`));
  t.ok(isAsShown("first\nsecond\nlast\n", "first\n…\nlast\n"));
  t.notOk(isAsShown("first\nsecond\nother\n", "first\n…\nlast\n"));
});
