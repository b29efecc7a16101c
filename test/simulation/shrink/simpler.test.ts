import tap from "tap";
import { simplerForms } from "./simpler.ts";
import { violationKind } from "./violation-kind.ts";

await tap.test("simplerForms() makes one field simpler at a time, the simplest first", (t) => {
  t.same(simplerForms({ do: "crash", program: 1 }), [{ do: "crash", program: 0 }]);
  t.same(simplerForms(12_345, "at"), [0, 10_000, 12_000, 12_300, 12_340]);
  t.same(simplerForms(-450, "byMs"), [-1, -10, -225, -400]);
  t.same(simplerForms(30, "objects"), [1, 15, 29]);
  t.same(simplerForms({ do: "compact", writes: 2 }), [{ do: "compact" }, { do: "compact", writes: 1 }]);
  t.same(simplerForms([{ objects: 2 }, { objects: 1 }], "kinds"), [
    [{ objects: 1 }],
    [{ objects: 2 }],
    [{ objects: 1 }, { objects: 1 }],
  ]);
  t.end();
});

await tap.test("simplerForms() has none for what is simplest, and never a time of 0", (t) => {
  const simplest = {
    seed: 9,
    do: "x",
    at: 0,
    ms: 1,
    share: 1,
    status: 503,
    kind: 0,
    force: false,
    access: "each",
    no: null,
  };
  t.same(
    simplerForms(simplest).filter((form) => (form as typeof simplest).share === 1),
    [],
  );
  for (const ms of [1, 2, 9, 10, 4_711]) t.notOk(simplerForms(ms, "ms").includes(0));
  t.end();
});

await tap.test("violationKind() is the text before the first colon, and of liveness a little more", (t) => {
  t.equal(violationKind("S1: 3 objects: lost"), "S1");
  t.equal(violationKind("a freeze is left"), "a freeze is left");
  t.equal(violationKind("liveness: a run does not end"), "liveness: a run does not");
  t.not(violationKind("liveness: an undisturbed run ends with x"), violationKind("liveness: a run does not end"));
  t.end();
});
