import tap from "tap";
import { ASKED_BY_ANNOTATION, GENERATION_ANNOTATION } from "../../src/api/names.ts";
import type { KubeObject } from "../../src/kube/client.ts";
import { Deference } from "../../src/webhook/deference.ts";

const TIMES = { askAfterMs: 100, maxAskAfterMs: 300, answerMs: 10 };
const KEEPS = { kind: "keeps", isOrphan: false };

function object(generation: string, isAsked = false): KubeObject {
  const question = isAsked ? { [ASKED_BY_ANNOTATION]: "1" } : {};
  return { metadata: { annotations: { [GENERATION_ANNOTATION]: generation, ...question } } };
}

await tap.test("Deference keeps what is missing, as old, or older", async (t) => {
  const deference = new Deference(TIMES);
  t.same(deference.standing(undefined, 1, 0), KEEPS);
  t.same(deference.standing({ metadata: {} }, 1, 0), KEEPS);
  t.same(deference.standing(object("1"), 1, 0), KEEPS);
  t.same(deference.standing(object("1", true), 1, 0), KEEPS);
  t.same(deference.standing(object("1"), 2, 0), KEEPS);
});

await tap.test(
  "Deference yields to a newer object, asks after a while, and goes on yielding where it is answered",
  async (t) => {
    const deference = new Deference(TIMES);
    t.same(deference.standing(object("2"), 1, 1_000), { kind: "yields", newer: 2, lookAgainMs: 100 });
    t.same(deference.standing(object("2"), 1, 1_060), { kind: "yields", newer: 2, lookAgainMs: 40 });
    t.same(deference.standing(object("2"), 1, 1_100), { kind: "asks", newer: 2 });
    deference.asked(1_101);
    t.same(deference.standing(object("2", true), 1, 1_105), { kind: "yields", newer: 2, lookAgainMs: 6 });
    t.same(deference.standing(object("2"), 1, 1_106), { kind: "yields", newer: 2, lookAgainMs: 200 }, "answered");
    t.same(deference.standing(object("2"), 1, 1_305), { kind: "yields", newer: 2, lookAgainMs: 1 });
    t.same(deference.standing(object("2"), 1, 1_306), { kind: "asks", newer: 2 });
    deference.asked(1_306);
    t.same(deference.standing(object("2"), 1, 1_307), { kind: "yields", newer: 2, lookAgainMs: 300 }, "at most");
  },
);

await tap.test("Deference takes over what no newer keeper answers for, also where another keeper asked", async (t) => {
  const deference = new Deference(TIMES);
  t.same(deference.standing(object("9", true), 1, 50), { kind: "yields", newer: 9, lookAgainMs: 10 });
  t.same(deference.standing(object("9", true), 1, 60), { kind: "keeps", isOrphan: true });
  t.same(deference.standing(object("9", true), 1, 61), { kind: "keeps", isOrphan: true }, "until it is written");
  t.same(deference.standing(object("1"), 1, 62), KEEPS);
  const again = deference.standing(object("9"), 1, 63);
  t.same(again, { kind: "yields", newer: 9, lookAgainMs: 200 }, "a client that stamps it again is asked later");
});
