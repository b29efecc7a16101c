/** One line of a text in the Prometheus format. */
interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** What a /metrics endpoint showed at one moment. */
export class ScrapedMetrics {
  readonly #samples: readonly Sample[];

  constructor(text: string) {
    this.#samples = text.split("\n").flatMap(sampleOf);
  }

  /** The sum of the samples with this name of which the labels match. */
  sum(name: string, matches: (labels: Readonly<Record<string, string>>) => boolean = () => true): number {
    const found = this.#samples.filter((sample) => sample.name === name && matches(sample.labels));
    return found.reduce((sum, { value }) => sum + value, 0);
  }

  /** The sums by the value of one label. */
  by(name: string, label: string): ReadonlyMap<string, number> {
    const sums = new Map<string, number>();
    for (const { labels, value } of this.#samples.filter((sample) => sample.name === name)) {
      const key = labels[label] ?? "";
      sums.set(key, (sums.get(key) ?? 0) + value);
    }
    return sums;
  }
}

function sampleOf(line: string): readonly Sample[] {
  const [, name, labels = "", value] = /^([a-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/i.exec(line) ?? [];
  if (name === undefined) return [];
  const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key = "", text = ""]) => [key, text]);
  return [{ name, labels: Object.fromEntries(pairs) as Record<string, string>, value: Number(value) }];
}
