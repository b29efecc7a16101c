import tap from "tap";

import { renderTable } from "../../src/cli/render/render-table.ts";

await tap.test("renderTable() pads each column to its widest cell and leaves no blanks at the end", (t) => {
  t.equal(
    renderTable([
      ["NAME", "STORAGE"],
      ["widgets.example.com", "v1"],
      ["a", "v1beta1"],
    ]),
    "NAME                  STORAGE\nwidgets.example.com   v1\na                     v1beta1",
  );
  t.equal(renderTable([["NAME", "NOTE"], ["a"], ["b", ""]]), "NAME   NOTE\na\nb");
  t.equal(renderTable([["NAME", "NOTE"]]), "NAME   NOTE");
  t.equal(renderTable([]), "");
  t.end();
});
