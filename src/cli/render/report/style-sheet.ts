import { DARK, LIGHT, type Palette } from "./palette.ts";

function variables(palette: Palette): string {
  return Object.entries(palette)
    .map(([name, color]) => `--${name}:${color};`)
    .join("");
}

/** Everything that a browser is told of how a report looks: no fonts, pictures or styles come from elsewhere. */
export const STYLE_SHEET = `
:root{color-scheme:light dark;${variables(LIGHT)}}
@media (prefers-color-scheme:dark){:root{${variables(DARK)}}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:break-word}
header,nav,main,footer{max-width:90rem;margin:0 auto;padding:0 1.5rem}
h1{font-size:1.75rem;line-height:1.25;margin:2rem 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem}
p{max-width:60rem;margin:.5rem 0}
a{color:var(--link)}
code{font-family:ui-monospace,monospace;font-size:.9375em;overflow-wrap:anywhere}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
main:focus{outline:none}
.skip{position:absolute;left:-100rem;padding:.5rem 1rem;background:var(--page)}
.skip:focus{left:.5rem;top:.5rem}
.muted{color:var(--muted)}
dl.about{display:grid;grid-template-columns:max-content 1fr;gap:.25rem 1.5rem;margin:1rem 0}
dl.about dt{color:var(--muted)}
dl.about dd{margin:0;overflow-wrap:anywhere}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;margin:0;padding:.75rem 0;border-block:1px solid var(--line)}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.75rem;list-style:none;margin:1rem 0;padding:0}
.tiles li{background:var(--surface);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem}
.tiles .muted{font-size:.875rem}
.tiles strong{display:block;font-size:1.5rem;line-height:1.2}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem;margin:.75rem 0}
table{border-collapse:collapse;width:100%;font-size:.875rem}
caption{text-align:left;padding:.5rem .75rem;color:var(--muted)}
th,td{text-align:left;vertical-align:top;padding:.5rem .75rem;border-top:1px solid var(--line);unicode-bidi:isolate}
thead th{background:var(--surface);white-space:nowrap}
tbody th{font-weight:600;min-width:15rem;overflow-wrap:anywhere}
td{min-width:7rem;overflow-wrap:anywhere}
td.wide{min-width:20rem}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tfoot th,tfoot td{background:var(--surface);font-weight:600}
tr:target th,tr:target td{background:var(--surface)}
.badge{display:inline-block;border-radius:.375rem;padding:0 .5rem;font-weight:600;white-space:nowrap}
.bad{color:var(--bad-text);background:var(--bad-surface)}
.warn{color:var(--warn-text);background:var(--warn-surface)}
.busy{color:var(--busy-text);background:var(--busy-surface)}
.good{color:var(--good-text);background:var(--good-surface)}
.plain{color:var(--plain-text);background:var(--plain-surface)}
.findings{padding-left:1.25rem}
.findings>li{margin:.75rem 0}
details{margin:.25rem 0}
summary{cursor:pointer;color:var(--link)}
details ul{margin:.25rem 0;padding-left:1.25rem}
footer{margin-top:3rem;padding-bottom:2rem;color:var(--muted);font-size:.875rem}
@media (max-width:40rem){header,nav,main,footer{padding:0 1rem}dl.about{grid-template-columns:1fr;gap:0}dl.about dd{margin-bottom:.5rem}}
@page{size:A4 landscape;margin:1.5cm}
@media print{
:root{color-scheme:light;${variables(LIGHT)}}
body{font-size:10pt}
header,nav,main,footer{max-width:none;padding:0}
nav,.skip{display:none}
.scroll{overflow:visible;border:0}
table{font-size:8pt}
th,td,td.wide{padding:.2rem .4rem;min-width:0}
tbody th{min-width:11rem}
caption{break-after:avoid;padding:.2rem .4rem}
thead{display:table-header-group}
tfoot{display:table-row-group}
tr,.tiles li,.findings>li{break-inside:avoid}
h2{break-after:avoid;margin-top:1.5rem}
details::details-content{content-visibility:visible;display:block;height:auto}
.badge{border:1px solid currentColor}
a{color:inherit;text-decoration:none}
}
`;
