// CRDs of a cluster and of a file, each pair with its steps. steps.test.ts plans them, and crd-pairs.test.ts carries
// them out.
import type { Route, Step } from "../../src/inventory/steps.ts";

/** `v1:ab+ v2-`: v1 is stored, and its spec has the fields a and b; v2 is not served, and its spec has a. */
export type Versions = string;
/** How objects are converted: not at all, by a webhook, or by another one. */
export type Conversion = "None" | "W" | "X";

/** What there is to know of a pair besides the versions. */
export interface More {
  /** The versions that objects are stored in, the storage version last: storedVersions. @default that alone */
  readonly stored?: Versions;
  /** Of the CRD, and of the file. @default None, None */
  readonly by?: readonly [Conversion, Conversion];
  /** Who took all but the storage version out of storedVersions. @default no client */
  readonly pruner?: string;
  /** Of the file. @default "apiextensions.k8s.io/v1" */
  readonly apiVersion?: string;
  /** What `check` says besides. @default nothing of fields that are lost */
  readonly notes?: RegExp;
}

/** The verdict and the steps as {@link planText} has them. */
export type Pair<M = More> = readonly [
  name: string,
  live: Versions | undefined,
  file: Versions,
  expected: string | RegExp,
  more?: M,
];

/** `spec.versions` of a CRD. */
export function versionsIn(text: Versions) {
  return text.split(" ").map((one) => {
    const [, name = "", fields = "a", flags = ""] = /^(\w+)(?::(\w+))?([+-]*)$/.exec(one) ?? [];
    const properties = Object.fromEntries(fields.split("").map((field) => [field, { type: "string" }]));
    const schema = { openAPIV3Schema: { type: "object", properties: { spec: { type: "object", properties } } } };
    return { name, served: !flags.includes("-"), storage: flags.includes("+"), schema };
  });
}

/** `spec.conversion` of a CRD. The webhooks differ by the path. */
export function conversionIn(by: Conversion, { url, ...trust }: { readonly url: string; readonly caBundle?: string }) {
  if (by === "None") return { strategy: "None" };
  const clientConfig = { url: `${url}${by}`, ...trust };
  return { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig } };
}

/** `needs-migration: serve v1+ v2 W, …`, or why there is no way and what helps. */
export function planText({
  help,
  reason,
  steps,
  verdict,
}: Pick<Route, "help" | "reason" | "steps"> & { readonly verdict: string }): string {
  return `${verdict}: ${help.length > 0 ? [reason, ...help].join("; ") : steps.map(stepText).join(", ")}`;
}

/** What a step writes; `serve` alone where the version is served already. */
function stepText({ does, kind, spec }: Step): string {
  if (kind === "migrate") return `migrate ${/every object in (\w+)/.exec(does)?.[1]}`;
  if (spec === undefined) return kind;
  const { conversion, versions } = spec as {
    readonly conversion?: { readonly webhook?: object };
    readonly versions: ReturnType<typeof versionsIn>;
  };
  const texts = versions.map(({ name, served, storage }) => `${name}${storage ? "+" : ""}${served ? "" : "-"}`);
  const webhook = /"url":"[^"]*\/(\w)"/.exec(JSON.stringify(conversion?.webhook ?? ""))?.[1];
  return [kind, ...texts, ...(webhook === undefined ? [] : [webhook])].join(" ");
}

export const LISTED = { stored: "v1 v2" };
const LOSES = { notes: /its schema lacks spec\.b \(2 objects\)/ };

export const PAIRS: readonly Pair[] = [
  // Nothing is there, or nothing leaves.
  ["a CRD that is not there is created", undefined, "v1+", "applicable: apply v1+"],
  ["the same file", "v1+", "v1+", "applicable: apply v1+"],
  ["a version is added", "v1+", "v1+ v2", "applicable: apply v1+ v2"],
  ["two versions are added", "v1+", "v1+ v2 v3", "applicable: apply v1+ v2 v3"],
  ["a version is added as unserved", "v1+", "v1+ v2-", "applicable: apply v1+ v2-"],
  ["a version is no longer served", "v1 v2+", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  ["a version is served again", "v1- v2+", "v1 v2+", "applicable: apply v1 v2+", LISTED],
  ["stale objects stay where their version stays", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+", LISTED],
  ["a field is added", "v1:a+", "v1:ab+", "applicable: apply v1+"],
  ["the schema is narrowed", "v1:ab+", "v1:a+", "applicable: apply v1+", LOSES],
  ["the schema is narrowed, and a version is added", "v1:ab+", "v1:a+ v2", "applicable: apply v1+ v2", LOSES],
  [
    "a version that objects are stored in stays with a narrower schema",
    "v1:ab v2:ab+",
    "v1:a- v2:ab+",
    "needs-migration: migrate v2, apply v1- v2+",
    LISTED,
  ],
  [
    "the storage version moves, and the old one stays with a narrower schema",
    "v1:ab+ v2:ab",
    "v1:a v2:ab+",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v1 v2+",
  ],
  [
    "a version leaves, and the storage version gets a field that objects of it have",
    "v1:ab v2:a+",
    "v2:ab+",
    "needs-migration: serve v1 v2+, migrate v2, apply v2+",
    LISTED,
  ],
  [
    "a version leaves whose fields the storage version hides",
    "v1:ab v2:a+",
    "v2:a+",
    "needs-migration: migrate v2, apply v2+",
    { ...LISTED, ...LOSES },
  ],
  [
    "a file that serves no version",
    "v1+",
    "v1+-",
    /^refused: with this file it serves no version; change that in this file/,
  ],
  [
    "a file that does not serve the storage version, and brings a webhook",
    "v1:a v2:ab+",
    "v1:a v2:ab+-",
    "applicable: apply v1 v2+- W",
    { by: ["None", "W"] },
  ],
  [
    "a file that does not serve the storage version, and serves a narrower one",
    "v1:a v2:ab+",
    "v1:a v2:ab+-",
    /^refused: with this file its storage version v2 is not served, and v1 has another schema/,
  ],
  // The storage version moves, and the old one stays.
  ["the storage version moves to a version that is there", "v1+ v2", "v1 v2+", "applicable: serve, apply v1 v2+"],
  ["it moves back", "v1 v2+", "v1+ v2", "applicable: serve, apply v1+ v2", LISTED],
  [
    "it moves to a new version",
    "v1+",
    "v1 v2+",
    "applicable: serve v1+ v2, apply v1 v2+",
    { notes: /stay stored in v1 until/ },
  ],
  ["it moves to a version that is not served", "v1+ v2-", "v1 v2+", "applicable: serve v1+ v2, apply v1 v2+"],
  [
    "it moves to a version that the file does not serve",
    "v1+ v2-",
    "v1 v2+-",
    "applicable: serve v1+ v2, apply v1 v2+-",
  ],
  ["it moves to a version with another schema", "v1+ v2:a", "v1 v2:ab+", "applicable: serve v1+ v2, apply v1 v2+"],
  [
    "it moves to a version with a narrower schema",
    "v1:ab+ v2:ab",
    "v1:ab v2:a+",
    "applicable: serve v1+ v2, apply v1 v2+",
    LOSES,
  ],
  ["it moves, and the old one is no longer served", "v1+ v2", "v1- v2+", "applicable: serve, apply v1- v2+"],
  ["it moves, and a third version is added", "v1+ v2", "v1 v2+ v3", "applicable: serve, apply v1 v2+ v3"],
  // A version leaves.
  [
    "a version leaves that objects may be stored in",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { ...LISTED, notes: /managedFields of 2 of 4 objects name v1/ },
  ],
  ["so does one that is not served", "v1- v2+", "v2+", "needs-migration: migrate v2, apply v2+", LISTED],
  [
    "two leave, one of them unserved",
    "v0- v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { stored: "v0 v1 v2" },
  ],
  [
    "one leaves, and one that objects may be stored in stays",
    "v0 v1 v2+",
    "v1 v2+",
    "needs-migration: migrate v2, apply v1 v2+",
    { stored: "v0 v1 v2" },
  ],
  ["one leaves that was never stored", "v1 v2+", "v2+", "applicable: migrate v2, apply v2+"],
  [
    "one leaves that ksvm took out of storedVersions",
    "v1 v2+",
    "v2+",
    "applicable: migrate v2, apply v2+",
    { ...LISTED, pruner: "ksvm-freeze" },
  ],
  [
    "one leaves that a user took out of storedVersions",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { ...LISTED, pruner: "kubectl-patch" },
  ],
  [
    "one leaves that Kubernetes' own migrator took out",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { ...LISTED, pruner: "kube-controller-manager" },
  ],
  ["one leaves, and one is added", "v1 v2+", "v2+ v3", "needs-migration: migrate v2, apply v2+ v3", LISTED],
  [
    "one leaves, and the schema is narrowed",
    "v1 v2:ab+",
    "v2:a+",
    "needs-migration: migrate v2, apply v2+",
    { ...LISTED, ...LOSES },
  ],
  [
    "the one that was never stored leaves, and the stored one stays",
    "v1 v2+ v3",
    "v1 v2+",
    "applicable: migrate v2, apply v1 v2+",
    LISTED,
  ],
  // The storage version leaves.
  [
    "a new version takes the place of the old one",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "a version that is there takes its place",
    "v1+ v2",
    "v2+",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "one that is not served takes its place",
    "v1+ v2-",
    "v2+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
  ],
  [
    "one that the file does not serve takes its place",
    "v1+ v2",
    "v2+- v3",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v2+- v3",
  ],
  [
    "two new ones take its place",
    "v1+",
    "v2 v3+",
    "needs-migration: serve v1+ v3, flip v1 v3+, migrate v3, apply v2 v3+",
  ],
  [
    "all three are replaced",
    "v0 v1 v2+",
    "v3+ v4",
    "needs-migration: serve v0 v1 v2+ v3, flip v0 v1 v2 v3+, migrate v3, apply v3+ v4",
    { stored: "v0 v2" },
  ],
  [
    "the storage version moves, and an older one leaves",
    "v0 v1+",
    "v1 v2+",
    "needs-migration: serve v0 v1+ v2, flip v0 v1 v2+, migrate v2, apply v1 v2+",
    { stored: "v0 v1" },
  ],
  [
    "the storage version moves, and an older one leaves that was never stored",
    "v0 v1+",
    "v1 v2+",
    "applicable: serve v0 v1+ v2, flip v0 v1 v2+, migrate v2, apply v1 v2+",
  ],
  [
    "the storage version leaves for an older one",
    "v1 v2+",
    "v1+",
    "needs-migration: serve, flip v2 v1+, migrate v1, apply v1+",
    LISTED,
  ],
  [
    "the new one has a narrower schema",
    "v1:ab+",
    "v2:a+",
    "needs-migration: serve v1+ v2, flip v1 v2+, migrate v2, apply v2+",
    LOSES,
  ],
  // Conversion.
  ["a webhook comes", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+ W", { by: ["None", "W"] }],
  ["a webhook is replaced", "v1 v2+", "v1 v2+", "applicable: apply v1 v2+ X", { by: ["W", "X"] }],
  [
    "a webhook comes with a new storage version",
    "v1+",
    "v1 v2+",
    "applicable: serve v1+ v2 W, apply v1 v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "a webhook comes with a version that is there",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve v1+ v2 W, apply v1 v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "a webhook is replaced as the storage version moves",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve v1+ v2 X, apply v1 v2+ X",
    { by: ["W", "X"] },
  ],
  [
    "the storage version moves under a webhook",
    "v1+ v2",
    "v1 v2+",
    "applicable: serve, apply v1 v2+ W",
    { by: ["W", "W"] },
  ],
  [
    "a version leaves under a webhook",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+ W",
    { by: ["W", "W"], ...LISTED },
  ],
  [
    "a new version takes the place of the old one under a webhook",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v2+ W",
    { by: ["W", "W"] },
  ],
  [
    "a new version comes with its webhook in the place of the old one",
    "v1+",
    "v2+",
    "needs-migration: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "while objects leave, the webhook of now goes on to convert",
    "v1+ v2",
    "v2+",
    "needs-migration: serve, flip v1 v2+ W, migrate v2, apply v2+ X",
    { by: ["W", "X"] },
  ],
  [
    "a webhook comes as objects leave for a version that lacks a field, and converts none of them",
    "v1:ab+ v2:ac",
    "v2:ac+ v3",
    "needs-migration: serve, flip v1 v2+, migrate v2, apply v2+ v3 W",
    { by: ["None", "W"], ...LOSES },
  ],
  [
    "a webhook comes, and converts what is stored in a version that stays and loses a field",
    "v1:ab+ v2:ac",
    "v1:a v2:ac+",
    "needs-migration: serve v1+ v2 W, flip v1 v2+ W, migrate v2, apply v1 v2+ W",
    { by: ["None", "W"] },
  ],
  [
    "a webhook comes with a new storage version, and an older one leaves",
    "v0 v1+",
    "v1 v2+",
    "needs-migration: serve v0 v1+ v2 W, flip v0 v1 v2+ W, migrate v2, apply v1 v2+ W",
    { by: ["None", "W"], stored: "v0 v1" },
  ],
  [
    "a webhook is replaced as the storage version moves to one that is there, and an older one leaves",
    "v0 v1+ v2",
    "v1 v2+",
    "needs-migration: serve, flip v0 v1 v2+ W, migrate v2, apply v1 v2+ X",
    { by: ["W", "X"], stored: "v0 v1" },
  ],
  [
    "a webhook goes, and nothing would convert what is stored in v1",
    "v1 v2+",
    "v1 v2+",
    "needs-migration: migrate v2, apply v1 v2+",
    { by: ["W", "None"], ...LISTED },
  ],
  [
    "a webhook goes that nothing stored needs",
    "v1 v2+",
    "v1 v2+",
    "applicable: migrate v2, apply v1 v2+",
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes as the storage version moves",
    "v1+ v2",
    "v1- v2+",
    "needs-migration: serve, flip v1 v2+ W, migrate v2, apply v1- v2+",
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes with a version",
    "v1 v2+",
    "v2+",
    "needs-migration: migrate v2, apply v2+",
    { by: ["W", "None"], ...LISTED },
  ],
  [
    "a webhook goes in the file that brings a version",
    "v1+",
    "v1 v2+",
    /^refused: .*brings v2, has none; keep a webhook/,
    { by: ["W", "None"] },
  ],
  [
    "a webhook goes in the file that replaces the version",
    "v1+",
    "v2+",
    /^refused: .*brings v2, has none/,
    { by: ["W", "None"] },
  ],
  // There is no way.
  [
    "an API of CRDs that is not served",
    "v1+",
    "v1+",
    /^refused: apiextensions.k8s.io\/v1beta1 is not served/,
    { apiVersion: "apiextensions.k8s.io/v1beta1" },
  ],
  ["no version is served", "v1- v2+-", "v2+-", /^refused: it serves no version; kubectl patch/, LISTED],
  ["a file that serves one again", "v1- v2+-", "v1- v2+", "applicable: apply v1- v2+", LISTED],
  ["a file that serves one again, and drops another", "v1- v2+-", "v2+", /^refused: it serves no version/, LISTED],
  ["a storage version that is not served", "v1:ab v2:a+-", "v1:ab+", /^refused: its storage version v2 is not served/],
  ["no storage version", "v1+", "v1", /^refused: it has no storage version/],
  ["two storage versions", "v1+", "v1+ v2+", /^refused: it has no storage version/],
];
