import type { ModelRequest } from "../model/types.ts";
import type { Random } from "../../chaos/random.ts";
import { collectionOf, resourceOf } from "../world/kinds.ts";
import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import type { FalseAnswer } from "../world/sim-cluster.ts";
import type { World } from "../world/world.ts";
import { FAIRNESS_HEADER } from "../checks/load-check.ts";
import { sort } from "./action-sort.ts";
import { kindOf, lastingOf, obstacleLastingOf } from "./choices.ts";

const RETRY_AFTER = ["0", "1", "1", "5", "30", "-5", "1.5", "3600", "99999999999999999999", "", "soon"];
const DATES = [
  "Thu, 01 Jan 2026 00:20:00 GMT",
  "Thu, 01 Jan 2126 00:00:00 GMT",
  "Sat, 01 Jan 2000 00:00:00 GMT",
  "2026-01-01",
];

/** API servers, or what stands before them, refuse a share of the requests, and say when the next one is welcome. */
export const throttle = sort<{
  readonly status: number;
  readonly retryAfter: string;
  readonly share: number;
  readonly ms: number;
}>({
  name: "throttle",
  choose: (random) => ({
    status: oneOf(random, [429, 429, 503, 413]),
    retryAfter: oneOf(random, oneIn(random, 5) ? DATES : RETRY_AFTER),
    share: spread(random, 0.1, 1),
    ms: obstacleLastingOf(random),
  }),
  play(world, { status, retryAfter, share, ms }) {
    const seconds = Number(retryAfter);
    const details = Number.isFinite(seconds) && retryAfter !== "" ? { details: { retryAfterSeconds: seconds } } : {};
    const answer: FalseAnswer = {
      status,
      headers: { [FAIRNESS_HEADER]: "1", ...(retryAfter === "" ? {} : { "retry-after": retryAfter }) },
      body: {
        reason: status === 413 ? "RequestEntityTooLarge" : "TooManyRequests",
        message: status === 413 ? "the request is too large" : "too many requests, please try again later",
        ...details,
      },
    };
    interfere(world, ms, ({ body }, random) => {
      // What is too large is what a request has, not what it asks for.
      const isMeant = status !== 413 || body !== "";
      return isMeant && oneIn(random, 1 / share) ? answer : undefined;
    });
  },
});

/** An admission plugin refuses the writes of some objects, as ResourceQuota does where a namespace is full. */
export const quota = sort<{ readonly kind: number; readonly ms: number }>({
  name: "quota",
  choose: (random, limits) => ({ kind: kindOf(random, limits), ms: obstacleLastingOf(random) }),
  play(world, { kind, ms }) {
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    const collections = plan.versions.map((version) => collectionOf(plan, version));
    const refusal = (name: string): FalseAnswer => ({
      status: 403,
      body: {
        reason: "Forbidden",
        details: { name, kind: plan.plural },
        message: `${resourceOf(plan)} "${name}" is forbidden: exceeded quota: compute, requested: cpu=1, used: cpu=9, limited: cpu=9`,
      },
    });
    interfere(world, ms, ({ method, path }) => {
      const name = path.split("/").at(-1) ?? "";
      const isWrite = method === "PATCH" && collections.some((collection) => path.startsWith(collection));
      return isWrite && name.endsWith("2") ? refusal(name) : undefined;
    });
  },
});

/** Interferes with requests of ksvm for some time, beside what else interferes. */
function interfere(
  { cluster, schedule, streams }: World,
  ms: number,
  harm: (request: ModelRequest, random: Random) => FalseAnswer | undefined,
): void {
  const random = streams("overload");
  const end = cluster.interfere((user, request) =>
    request !== undefined && user.startsWith("ksvm") ? harm(request, random) : undefined,
  );
  schedule.in(ms, end);
}

/** etcd is compacted again and again, so that continue tokens expire while a list is read. */
export const expireTokens = sort<{ readonly everyMs: number; readonly ms: number }>({
  name: "expireTokens",
  choose: (random) => ({ everyMs: Math.round(spread(random, 5, 5_000)), ms: Math.min(60_000, lastingOf(random)) }),
  play({ cluster: { etcd }, schedule }, { everyMs, ms }) {
    const compact = (leftMs: number): void => {
      if (etcd.revision > etcd.compactedRevision) etcd.compact(etcd.revision);
      if (leftMs > 0) schedule.in(everyMs, () => compact(leftMs - Math.max(everyMs, ms / 200)));
    };
    compact(ms);
  },
});
