import tap from "tap";
import { KsvmError } from "../../../src/errors.ts";
import { thrownText } from "./thrown-text.ts";

await tap.test("thrownText() takes what the language itself throws for a mistake in the code", (t) => {
  const violations: string[] = [];
  const world = { violate: (violation: string) => violations.push(violation) };
  const cause = new SyntaxError("the body is no JSON");
  t.equal(thrownText(world, "a", new KsvmError("Conflict", "Cannot go on", { cause })), "Cannot go on");
  t.equal(thrownText(world, "a", new DOMException("aborted", "AbortError")), "aborted");
  t.same(violations, []);
  t.equal(thrownText(world, "a", new TypeError("b is not a function")), "b is not a function");
  t.same(violations, ["mistake: a threw a TypeError: b is not a function"]);
  t.end();
});
