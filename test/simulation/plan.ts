import type { RequestMoment } from "./world/requests.ts";

/** A CRD of a simulated cluster, and its objects. */
export interface KindPlan {
  /** The plural; the CRD is `PLURAL.sim.example.com`. */
  readonly plural: string;
  /** Whether it is a resource of the API servers themselves, without a CRD. @default false */
  readonly isBuiltIn?: boolean;
  /** From the oldest to the newest. */
  readonly versions: readonly string[];
  /** The storage version that it is created with. */
  readonly createdIn: string;
  readonly objects: number;
}

/** What runs in a slot for programs, each time that it is started. */
export interface ProgramPlan {
  readonly run: "migrate" | "reencrypt" | "controller";
  /** An index of `plan.kinds`. */
  readonly kind: number;
  /** What a migration by hand is of beside that, as indexes of `plan.kinds`. @default nothing */
  readonly also?: readonly number[];
  readonly force: boolean;
  /** Whether a controller decides by itself what to migrate. @default "on" */
  readonly trigger?: "on" | "off";
  /** Whether users ask a controller to re-encrypt. @default false */
  readonly reencrypts?: boolean;
}

/** What happens to the world at some moment. */
export interface Action {
  /** Milliseconds since the world was set up. */
  readonly at: number;
  /** Where it happens when ksvm sends a request, and not at a time: from `at` on that is waited for. */
  readonly on?: RequestMoment;
  /** The name of its sort (`actions/`), whose parameters stand beside it. */
  readonly do: string;
  /** How long it lasts, in milliseconds, where it does. */
  readonly ms?: number;
  /** How many writes of users come with it, in the seconds after it. */
  readonly writes?: number;
}

/** One simulated world, as far as it is decided before it begins; the seed decides the rest. Plain JSON. */
export interface Plan {
  readonly seed: number;
  readonly servers: number;
  /** How ksvm reaches the API servers: one by one, or behind one address. */
  readonly access: "each" | "sampled";
  /** Whether the API servers serve the migrations of Kubernetes' own migrator. @default false */
  readonly hasInTree?: boolean;
  /** Whether the webhook guards freezes. @default false: a policy of each run does */
  readonly hasWebhook?: boolean;
  readonly kinds: readonly KindPlan[];
  /** How old the CRDs are when the world begins, in milliseconds. @default two minutes */
  readonly ageMs?: number;
  /** `--max-in-flight` of those who migrate by hand. @default that of the settings */
  readonly maxInFlight?: number;
  /** What runs in the slots for programs. */
  readonly programs: readonly ProgramPlan[];
  /** Milliseconds from one write of a user to the next, on average. */
  readonly writeEveryMs: number;
  readonly actions: readonly Action[];
}
