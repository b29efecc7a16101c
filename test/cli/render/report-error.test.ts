import tap from "tap";

import { codeOf, errorLine, exitCodeOf } from "../../../src/cli/render/report-error.ts";
import { ERROR_CODES, KsvmError } from "../../../src/errors.ts";

for (const code of ERROR_CODES) {
  await tap.test(`exitCodeOf() is right when the code is ${code}`, (t) => {
    const expected = { Interrupted: 130, Usage: 2 }[code as string] ?? 1;
    const error = new KsvmError(code, "Cannot do it");
    t.equal(exitCodeOf(error), expected);
    t.equal(codeOf(error), code);
    t.equal(errorLine(error), `error: Cannot do it [${code}]`);
    t.end();
  });
}

const strays: readonly [name: string, thrown: unknown, line: string][] = [
  ["another error", new TypeError("x is\n   undefined"), "error: x is undefined [Internal]"],
  ["a text", "oops", "error: oops [Internal]"],
  ["nothing", undefined, "error: undefined [Internal]"],
];

for (const [name, thrown, line] of strays) {
  await tap.test(`errorLine() is one line when ${name} was thrown`, (t) => {
    t.equal(errorLine(thrown), line);
    t.equal(exitCodeOf(thrown), 1);
    t.end();
  });
}
