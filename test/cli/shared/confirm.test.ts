import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import tap from "tap";

import { confirm } from "../../../src/cli/shared/confirm.ts";

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
    t.equal(await confirm(io, "Continue?"), expected);
    t.equal(await shown(), "Continue? [y/N] ");
  });
}

await tap.test("confirm() does not ask where there is no terminal", async (t) => {
  const { io, shown } = terminal(undefined, {});
  t.equal(await confirm(io, "Continue?"), true);
  t.equal(await shown(), "");
});

await tap.test("confirm() ends when it is interrupted", async (t) => {
  const { io, interruption } = terminal();
  const answer = confirm(io, "Continue?");
  interruption.abort(new Error("Ctrl-C"));
  await t.rejects(answer, /Ctrl-C/);
});
