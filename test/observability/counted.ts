/** What a counter counted by one of its labels, without what never happened. */
export async function counted(
  counter: {
    get(): Promise<{
      readonly values: readonly { readonly value: number; readonly labels: Readonly<Record<string, unknown>> }[];
    }>;
  },
  label: string,
): Promise<Readonly<Record<string, number>>> {
  const { values } = await counter.get();
  const happened = values.filter(({ value }) => value > 0);
  return Object.fromEntries(happened.map(({ labels, value }) => [String(labels[label]), value]));
}
