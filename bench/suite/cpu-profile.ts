/** What `node --cpu-prof` writes, as far as it is read here: https://chromedevtools.github.io/devtools-protocol/tot/Profiler/#type-Profile */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  }[];
  /** The id of the node of each sample. */
  readonly samples: readonly number[];
  /** Microseconds before each sample. */
  readonly timeDeltas: readonly number[];
}

/** The milliseconds that each function took itself, those that it called left out; the longest first, and none that idles. */
export function ownTimes({
  nodes,
  samples,
  timeDeltas,
}: CpuProfile): readonly { readonly name: string; readonly ms: number }[] {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]));
  const times = new Map<string, number>();
  for (const [index, id] of samples.entries()) {
    const name = names.get(id) ?? "";
    times.set(name, (times.get(name) ?? 0) + (timeDeltas[index] ?? 0) / 1_000);
  }
  return [...times]
    .filter(([name]) => name !== "(idle)" && name !== "(root)")
    .map(([name, ms]) => ({ name, ms }))
    .toSorted((a, b) => b.ms - a.ms);
}

/** Without the folders above the package, which differ from machine to machine. */
function nameOf({ functionName, url, lineNumber }: CpuProfile["nodes"][number]["callFrame"]): string {
  const file = url.replace(/^.*\/(?=(?:node_modules|dist)\/)/, "");
  return `${functionName === "" ? "(anonymous)" : functionName}${file === "" ? "" : ` ${file}:${lineNumber + 1}`}`;
}
