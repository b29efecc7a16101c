/** How one test of another project ended. */
export interface TestResult {
  readonly name: string;
  readonly outcome: "pass" | "fail";
  /** In seconds. */
  readonly seconds: number;
}

/** A line of `go test -json`: https://pkg.go.dev/cmd/test2json. */
export interface GoTestEvent {
  readonly Action: string;
  readonly Test?: string;
  readonly Elapsed?: number;
  readonly Output?: string;
}

/** The event of a line; `undefined` where the line is none, as those of a compiler. */
export function goTestEvent(line: string): GoTestEvent | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    const event = JSON.parse(line) as Partial<GoTestEvent>;
    return typeof event.Action === "string" ? (event as GoTestEvent) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The results of the tests that were expected. One that was skipped, or of which nothing is said, as where it does not compile or the
 * program was ended, has failed: only a test that says so has passed.
 */
export function resultsOf(expected: readonly string[], events: readonly GoTestEvent[]): readonly TestResult[] {
  return expected.map((name) => {
    const end = events.findLast(({ Action, Test }) => Test === name && ["pass", "fail", "skip"].includes(Action));
    return { name, outcome: end?.Action === "pass" ? "pass" : "fail", seconds: end?.Elapsed ?? 0 };
  });
}

/** The tests that a file of Go has. */
export function testsIn(source: string): readonly string[] {
  return [...source.matchAll(/^func (Test\w+)\(t \*testing\.T\)/gm)].map(([, name = ""]) => name);
}

interface Spec {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly LeafNodeText: string;
  readonly State: string;
  /** In nanoseconds. */
  readonly RunTime: number;
}

/**
 * The result of one spec of Ginkgo: a run in which no spec was in focus ends with success, and has shown nothing.
 * @param report the text that `-ginkgo.json-report` writes
 */
export function specResult(name: string, report: string): TestResult {
  const suites = JSON.parse(report) as readonly { readonly SpecReports: readonly Spec[] | null }[];
  const spec = suites
    .flatMap(({ SpecReports }) => SpecReports ?? [])
    .find((one) => [...(one.ContainerHierarchyTexts ?? []), one.LeafNodeText].join(" ") === name);
  return { name, outcome: spec?.State === "passed" ? "pass" : "fail", seconds: (spec?.RunTime ?? 0) / 1e9 };
}
