import tap from "tap";
import { parse } from "yaml";
import { yamlText } from "../../../src/cli/render/yaml-text.ts";

await tap.test("yamlText() escapes what a terminal would act on, and means the same", (t) => {
  const value = {
    plain: "a b",
    lines: "first\nsecond\n",
    list: ["x\u202ey", "\u001b[2J", "\u009b31m", "tab\there"],
    ["key\u202e"]: { nested: "a\u2028b" },
  };
  const text = yamlText(value);
  t.notMatch(text, /[^\P{Cc}\n\t]|[\u202e\u2028]/u);
  t.same(parse(text), value);
  t.match(text, "lines: |\n  first\n  second\n", "what needs no escape reads as before");
  t.end();
});
