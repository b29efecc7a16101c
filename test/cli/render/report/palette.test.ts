import tap from "tap";
import { DARK, LIGHT, MARK_ON, type Palette, TEXT_ON } from "../../../../src/cli/render/report/palette.ts";
import { STYLE_SHEET } from "../../../../src/cli/render/report/style-sheet.ts";
import { contrastOf, rgbOf } from "../../../browser/wcag.ts";

function contrast(palette: Palette, one: keyof Palette, on: keyof Palette): number {
  return contrastOf(rgbOf(palette[one]), rgbOf(palette[on]));
}

for (const [scheme, palette] of Object.entries({ light: LIGHT, dark: DARK })) {
  await tap.test(`every text and every mark has the contrast of WCAG 2.2 AA, ${scheme}`, async (t) => {
    for (const [text, on] of TEXT_ON)
      t.ok(contrast(palette, text, on) >= 4.5, `${text} on ${on}: ${contrast(palette, text, on)}`);
    for (const [mark, on] of MARK_ON)
      t.ok(contrast(palette, mark, on) >= 3, `${mark} on ${on}: ${contrast(palette, mark, on)}`);
  });
}

await tap.test("contrastOf() is that of the WCAG", async (t) => {
  t.equal(contrastOf(rgbOf("#000000"), rgbOf("#ffffff")), 21);
  t.equal(
    contrastOf(rgbOf("#777777"), rgbOf("rgb(255, 255, 255)")).toFixed(2),
    "4.48",
    "negative control: just too pale",
  );
});

await tap.test("the style sheet uses the colors of the palette alone", async (t) => {
  const used = [...STYLE_SHEET.matchAll(/var\(--([a-z-]+)\)/g)].map(([, name]) => name ?? "");
  t.same([...new Set(used)].toSorted(), Object.keys(LIGHT).toSorted());
  const palettes = [...Object.values(LIGHT), ...Object.values(DARK)];
  const colors = [...STYLE_SHEET.matchAll(/#[0-9a-f]{3,8}\b/g)].map(([color]) => color);
  t.same(
    colors.filter((color) => !palettes.includes(color)),
    [],
  );
  t.notMatch(STYLE_SHEET, /url\(|@import|expression|</, "nothing is loaded, and the element cannot end early");
});
