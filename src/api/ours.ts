import { MANAGED_BY, MANAGED_BY_LABEL } from "./names.ts";

type Labels = Readonly<Record<string, string>>;

/** Puts its own name into {@link MANAGED_BY_LABEL} of everything that it installs, at every upgrade. */
const HELM = "Helm";
/** The labels by which deploy/ names the program that an object belongs to. */
const PROGRAM_LABELS = ["app.kubernetes.io/name", "app.kubernetes.io/part-of"];

/** Whether ksvm wrote an object, by its labels, or Helm did that installed ksvm. */
export function isOurs(labels: Labels = {}): boolean {
  return labels[MANAGED_BY_LABEL] === MANAGED_BY || isOfOurChart(labels);
}

/**
 * What an object of ours that has `labels` is to have as {@link MANAGED_BY_LABEL}: ksvm and Helm do not take it from
 * each other.
 */
export function managedByOf(labels: Labels = {}): string {
  return isOfOurChart(labels) ? HELM : MANAGED_BY;
}

function isOfOurChart(labels: Labels): boolean {
  return labels[MANAGED_BY_LABEL] === HELM && PROGRAM_LABELS.some((name) => labels[name] === MANAGED_BY);
}

/** By these Helm knows which release an object is of: one without them it neither changes nor deletes. */
const RELEASE_ANNOTATIONS = ["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"];

/** Labels and annotations of an object. */
export interface Marks {
  readonly labels?: Labels;
  readonly annotations?: Labels;
}

/**
 * What Helm, which installed an object of ours, wrote to it, and an object that takes its place has to have; nothing
 * where another client wrote it.
 */
export function helmMarksOf({ annotations = {}, labels = {} }: Marks): Required<Marks> {
  const kept = (marks: Labels, names: readonly string[]): Labels =>
    isOfOurChart(labels) ? Object.fromEntries(Object.entries(marks).filter(([name]) => names.includes(name))) : {};
  return {
    labels: kept(labels, [MANAGED_BY_LABEL, ...PROGRAM_LABELS]),
    annotations: kept(annotations, RELEASE_ANNOTATIONS),
  };
}

/**
 * The same object as `wanted`, with Helm's marks where Helm installed `live`: applied with the rest, they come back in
 * one write with an object that was deleted.
 */
export function besideHelm<T extends { readonly metadata: Marks }>(
  wanted: T,
  live: { readonly metadata: Marks } | undefined,
): T {
  const { annotations, labels } = wanted.metadata;
  if (labels?.[MANAGED_BY_LABEL] === undefined || !isOfOurChart(live?.metadata.labels ?? {})) {
    return wanted;
  }
  const helm = helmMarksOf(live?.metadata ?? {});
  const metadata = {
    ...wanted.metadata,
    labels: { ...labels, ...helm.labels },
    annotations: { ...annotations, ...helm.annotations },
  };
  return { ...wanted, metadata };
}
