/** A color as red, green and blue, each from 0 to 255. */
export type Rgb = readonly [red: number, green: number, blue: number];

/** The color that `#rrggbb`, or what a browser computes, stands for. */
export function rgbOf(color: string): Rgb {
  const hex = /^#(..)(..)(..)$/.exec(color);
  const parts = hex?.slice(1).map((part) => Number.parseInt(part, 16)) ?? color.match(/[\d.]+/g)?.map(Number) ?? [];
  const [red = Number.NaN, green = Number.NaN, blue = Number.NaN] = parts;
  return [red, green, blue];
}

/** The contrast of two colors, from 1 to 21: https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio */
export function contrastOf(one: Rgb, other: Rgb): number {
  const [dark = 0, light = 0] = [luminanceOf(one), luminanceOf(other)].toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminanceOf(color: Rgb): number {
  const [red = 0, green = 0, blue = 0] = color.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
