import { randomFrom, type Random } from "../chaos/random.ts";
import { oneIn, oneOf, spread } from "./world/random-choices.ts";

/** A CRD of a simulated cluster, and its objects. */
export interface KindPlan {
  /** The plural; the CRD is `PLURAL.sim.example.com`. */
  readonly plural: string;
  /** From the oldest to the newest. */
  readonly versions: readonly string[];
  /** The storage version that it is created with. */
  readonly createdIn: string;
  readonly objects: number;
}

/** What happens to the world at some moment. Times are milliseconds since the world was set up. */
export type Action = { readonly at: number } & (
  | { readonly do: "flip"; readonly kind: number; readonly to: string }
  | { readonly do: "create" | "update" | "delete"; readonly kind: number; readonly object: number }
  | { readonly do: "recreateCrd"; readonly kind: number }
  | { readonly do: "annotate"; readonly kind: number; readonly how: "freeze" | "unfreeze" | "takeOwner" | "nonsense" }
  | { readonly do: "foreignPrune"; readonly kind: number }
  | { readonly do: "editLease"; readonly kind: number; readonly how: "delete" | "steal" | "checkpoint" }
  | { readonly do: "start" | "crash"; readonly program: number }
  | { readonly do: "pause" | "suspend"; readonly program: number; readonly ms: number }
  | { readonly do: "jump"; readonly program: number; readonly ms: number }
  | { readonly do: "crashServer"; readonly server: number; readonly ms: number }
  | { readonly do: "hangServer" | "suspendServer"; readonly server: number; readonly ms: number }
  | { readonly do: "jumpServer"; readonly server: number; readonly ms: number }
  | {
      readonly do: "lag";
      readonly server: number;
      readonly of: "crds" | "handlers" | "discovery" | "admission" | "cache";
      readonly ms: number;
    }
  | { readonly do: "slow"; readonly server: number; readonly ms: number; readonly holdMs: number }
  | { readonly do: "joinServer" }
  | { readonly do: "disturb"; readonly ms: number; readonly share: number; readonly how: Disturbance }
  | {
      readonly do: "deny";
      readonly kind: number;
      readonly ms: number;
      readonly status: number;
      readonly reason: string;
    }
  | { readonly do: "compact" }
  | { readonly do: "restore"; readonly ageMs: number }
);

/** What something between ksvm and the API servers does to a share of the requests. */
export type Disturbance = "reset" | "resetAfter" | "lost" | "404" | "429" | "503" | "html";

/** One simulated world, as far as it is decided before it begins; the seed decides the rest. */
export interface Plan {
  readonly seed: number;
  readonly servers: number;
  /** How ksvm reaches the API servers: one by one, or behind one address. */
  readonly access: "each" | "sampled";
  readonly kinds: readonly KindPlan[];
  /** How many programs migrate. */
  readonly programs: number;
  /** Milliseconds from one write of a user to the next, on average. */
  readonly writeEveryMs: number;
  readonly force: boolean;
  readonly actions: readonly Action[];
}

const VERSIONS = ["v1alpha1", "v1beta1", "v1"];
/** How long disturbances go on after the programs have started, at the most and roughly. */
const DISTURBED_MS = 600_000;
/** When the storage version changes for the first time. */
const FLIP_AT = 2_000;

/** The plan that a seed stands for. */
export function planOf(seed: number): Plan {
  const random = randomFrom(seed);
  const servers = oneOf(random, [1, 2, 2, 3]);
  const kinds = [kindPlan(random, "widgets")];
  const programs = oneOf(random, [1, 1, 2]);
  const startAt = FLIP_AT + oneOf(random, [5, 100, 2_000, 20_000, 70_000, 300_000]);
  const limits = { servers, kinds, programs, startAt };
  const count = Math.floor(spread(random, 1, 24));
  // A world has a few sorts of disturbances, and those more often: with all of them at once no two would ever meet.
  const makers = Array.from({ length: Math.floor(spread(random, 1, 8)) }, () => oneOf(random, MAKERS));
  const actions = [
    ...beginning(random, limits),
    ...Array.from({ length: count }, () => oneOf(random, makers)(random, limits)),
  ].toSorted((a, b) => a.at - b.at);
  return {
    seed,
    servers,
    access: oneOf(random, ["each", "each", "sampled"]),
    kinds,
    programs,
    writeEveryMs: spread(random, 100, 5_000),
    force: oneIn(random, 6),
    actions,
  };
}

function kindPlan(random: Random, plural: string): KindPlan {
  const versions = oneIn(random, 3) ? VERSIONS : ["v1alpha1", "v1"];
  const createdIn = oneOf(random, versions);
  const objects = Math.floor(spread(random, 1, 30));
  return { plural, versions, createdIn, objects };
}

/**
 * How most worlds begin: the storage version changes while writes are under way, often on an API server that is slow or late, and
 * the programs start some time after that.
 */
function beginning(random: Random, limits: Limits): readonly Action[] {
  const server = serverOf(random, limits);
  const isLate = oneIn(random, 2);
  const slow = { at: oneOf(random, [500, 1_900]), do: "slow", server, ms: 120_000, holdMs: 60_000 } as const;
  const lag = lagOf(random, limits, 1_500);
  return [
    { at: FLIP_AT, do: "flip", kind: kindOf(random, limits), to: "v1" },
    ...(oneIn(random, 2) ? [slow] : []),
    ...(isLate ? [lag] : []),
    ...Array.from({ length: limits.programs }, (_, program) => ({
      at: limits.startAt + Math.round(program * spread(random, 1, 10_000)),
      do: "start" as const,
      program,
    })),
  ];
}

/** The handlers of an API server are behind its discovery by less than the settle time, and both are behind by any time. */
function lagOf(random: Random, limits: Limits, at: number): Action {
  const of = oneOf(random, ["crds", "handlers", "handlers", "discovery", "admission", "cache"] as const);
  const ms = Math.round(spread(random, 10, of === "crds" ? 400_000 : 60_000));
  return { at, do: "lag", server: serverOf(random, limits), of, ms };
}

interface Limits {
  readonly servers: number;
  readonly kinds: readonly KindPlan[];
  readonly programs: number;
  readonly startAt: number;
}

type Make = (random: Random, limits: Limits) => Action;

/** Before and after the programs start, soon as often as later: most of a run is its first minutes. */
const momentOf = (random: Random, { startAt }: Limits): number =>
  Math.round(oneIn(random, 4) ? spread(random, 10, startAt) : startAt + spread(random, 10, DISTURBED_MS / 3));
const kindOf = (random: Random, { kinds }: Limits): number => Math.floor(random() * kinds.length);
const serverOf = (random: Random, { servers }: Limits): number => Math.floor(random() * servers);
const programOf = (random: Random, { programs }: Limits): number => Math.floor(random() * programs);
const lastingOf = (random: Random): number => Math.round(spread(random, 50, DISTURBED_MS / 3));

/** One for each sort of action, the more likely ones more than once. */
const MAKERS: readonly Make[] = [
  ...Array<Make>(3).fill((random, limits) => {
    const kind = kindOf(random, limits);
    const versions = limits.kinds[kind]?.versions ?? VERSIONS;
    return { at: momentOf(random, limits), do: "flip", kind, to: oneOf(random, versions) };
  }),
  ...Array<Make>(2).fill((random, limits) => ({
    at: momentOf(random, limits),
    do: oneOf(random, ["create", "update", "delete"] as const),
    kind: kindOf(random, limits),
    object: Math.floor(random() * 30),
  })),
  (random, limits) => ({ at: momentOf(random, limits), do: "recreateCrd", kind: kindOf(random, limits) }),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "annotate",
    kind: kindOf(random, limits),
    how: oneOf(random, ["freeze", "unfreeze", "takeOwner", "nonsense"] as const),
  }),
  (random, limits) => ({ at: momentOf(random, limits), do: "foreignPrune", kind: kindOf(random, limits) }),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "editLease",
    kind: kindOf(random, limits),
    how: oneOf(random, ["delete", "steal", "checkpoint"] as const),
  }),
  ...Array<Make>(2).fill((random, limits) => ({
    at: momentOf(random, limits),
    do: oneOf(random, ["crash", "start"] as const),
    program: programOf(random, limits),
  })),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: oneOf(random, ["pause", "suspend"] as const),
    program: programOf(random, limits),
    ms: lastingOf(random),
  }),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "jump",
    program: programOf(random, limits),
    ms: Math.round(spread(random, 100, 7_200_000)) * (oneIn(random, 2) ? 1 : -1),
  }),
  ...Array<Make>(2).fill((random, limits) => ({
    at: momentOf(random, limits),
    do: oneOf(random, ["crashServer", "hangServer", "suspendServer"] as const),
    server: serverOf(random, limits),
    ms: lastingOf(random),
  })),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "jumpServer",
    server: serverOf(random, limits),
    ms: Math.round(spread(random, 100, 7_200_000)) * (oneIn(random, 2) ? 1 : -1),
  }),
  ...Array<Make>(4).fill((random, limits) => lagOf(random, limits, momentOf(random, limits))),
  ...Array<Make>(3).fill((random, limits) => ({
    at: momentOf(random, limits),
    do: "slow",
    server: serverOf(random, limits),
    ms: lastingOf(random),
    holdMs: Math.round(spread(random, 10, 60_000)),
  })),
  (random, limits) => ({ at: momentOf(random, limits), do: "joinServer" }),
  ...Array<Make>(2).fill((random, limits) => ({
    at: momentOf(random, limits),
    do: "disturb",
    ms: lastingOf(random),
    share: spread(random, 0.01, 1),
    how: oneOf(random, ["reset", "resetAfter", "lost", "404", "429", "503", "html"] as const),
  })),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "deny",
    kind: kindOf(random, limits),
    ms: lastingOf(random),
    status: oneOf(random, [400, 403, 404, 409, 410, 422, 429, 500, 503, 504]),
    reason: oneOf(random, ["", "NotFound", "Conflict", "Gone", "Expired", "TooManyRequests", "Invalid"]),
  }),
  (random, limits) => ({ at: momentOf(random, limits), do: "compact" }),
  (random, limits) => ({
    at: momentOf(random, limits),
    do: "restore",
    ageMs: Math.round(spread(random, 1_000, 300_000)),
  }),
];
