import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap from "tap";

import { confirm } from "../../src/cli/shared/confirm.ts";

function terminal(typed?: string, options: { readonly isTTY?: boolean } = { isTTY: true }) {
  const stdin = Object.assign(new PassThrough(), options);
  if (typed !== undefined) {
    stdin.end(typed);
  }
  const interruption = new AbortController();
  const stderr = new PassThrough();
  const io = { stdin, stdout: new PassThrough(), stderr, signal: interruption.signal };
  return { io, interruption, shown: () => text(stderr.end()) };
}

const answers: readonly [typed: string, expected: boolean][] = [
  ["y\n", true],
  ["YES \n", true],
  ["n\n", false],
  ["\n", false],
  ["yesterday\n", false],
  ["", false],
];

for (const [typed, expected] of answers) {
  await tap.test(`confirm() takes ${JSON.stringify(typed)} for ${expected ? "yes" : "no"}`, async (t) => {
    const { io, shown } = terminal(typed);
    t.equal(await confirm(io, "Continue?", "do it"), expected);
    t.equal(await shown(), "Continue? [y/N] ");
  });
}

await tap.test("confirm() takes nothing for a yes where there is no terminal", async (t) => {
  const { io, shown } = terminal(undefined, {});
  await t.rejects(confirm(io, "Continue?", "do it"), {
    code: "Usage",
    message: "Cannot do it without a confirmation, and there is no terminal to ask on: pass --yes",
  });
  t.equal(await shown(), "");
});

await tap.test("confirm() ends when it is interrupted", async (t) => {
  const { io, interruption } = terminal();
  const answer = confirm(io, "Continue?", "do it");
  interruption.abort(new Error("Ctrl-C"));
  await t.rejects(answer, /Ctrl-C/);
});
