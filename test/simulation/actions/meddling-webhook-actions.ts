import { CRDS, LEASES, MIGRATIONS, STORAGE_STATES } from "../../../src/kube/resources.ts";
import { FREEZE_REASON } from "../../../src/api/names.ts";
import type { SimWebhook } from "../world/sim-cluster.ts";
import type { WebhookRule } from "../world/user-actions.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import { admissionWebhook, hang } from "../world/webhook-answers.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, hasMigrations, obstacleLastingOf } from "./choices.ts";
import { BAD_ANSWERS, whileInstalled } from "./hostile-webhook-actions.ts";

const OPERATIONS = ["CREATE", "UPDATE", "DELETE"] as const;

/** What ksvm writes beside objects, policies and webhook configurations; those two no webhook is asked about. */
const RULES = {
  crds: { group: CRDS.group, resources: [CRDS.resource] },
  prunes: { group: CRDS.group, resources: [`${CRDS.resource}/status`] },
  leases: { group: LEASES.group, resources: [LEASES.resource] },
  migrations: { group: MIGRATIONS.group, resources: [MIGRATIONS.resource] },
  migrationStatus: { group: MIGRATIONS.group, resources: [`${MIGRATIONS.resource}/status`] },
  states: {
    group: STORAGE_STATES.group,
    resources: [STORAGE_STATES.resource, `${STORAGE_STATES.resource}/status`],
  },
} as const satisfies Readonly<Record<string, WebhookRule>>;

type What = keyof typeof RULES;

const OF_CRDS: readonly What[] = ["crds", "prunes"];
const OF_MIGRATIONS: readonly What[] = ["migrations", "migrationStatus", "migrationStatus", "states"];

const CODES = [0, 307, 400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504];
const REASONS = [
  "",
  "AlreadyExists",
  "Conflict",
  "Expired",
  "Forbidden",
  "Gone",
  "InternalError",
  "Invalid",
  "NotFound",
  "Timeout",
  "TooManyRequests",
];
const RETRY_AFTER_S = [-1, 1, 30, 100_000];
const MESSAGES = ["", "no", "the object has been modified", `${FREEZE_REASON}: cannot change the storage version`];

/**
 * A webhook of others sees what ksvm writes into CRDs, Leases, migrations or StorageStates, and denies it with one of many status codes,
 * hangs, or fails, for some time. What others write passes.
 */
export const meddle = sort<{
  readonly what: What;
  readonly how: string;
  readonly status: object;
  /** One in so many writes is harmed. */
  readonly every: number;
  readonly isIgnored: boolean;
  readonly timeoutSeconds: number;
  readonly ms: number;
}>({
  name: "meddle",
  // It has a stream of its own, see `meddlingOf()`.
  weight: 0,
  choose(random, limits) {
    const covered = [
      "leases",
      ...(hasCrd(limits) ? OF_CRDS : []),
      ...(hasMigrations(limits) ? OF_MIGRATIONS : []),
    ] as const;
    const retry = oneIn(random, 3) ? { details: { retryAfterSeconds: oneOf(random, RETRY_AFTER_S) } } : {};
    return {
      what: oneOf(random, covered),
      how: oneIn(random, 2) ? "deny" : oneOf(random, Object.keys(BAD_ANSWERS)),
      status: {
        code: oneOf(random, CODES),
        reason: oneOf(random, REASONS),
        message: oneOf(random, MESSAGES),
        ...retry,
      },
      every: oneOf(random, [1, 1, 2, 5]),
      isIgnored: oneIn(random, 6),
      timeoutSeconds: oneOf(random, [1, 10, 30]),
      ms: obstacleLastingOf(random),
    };
  },
  async play(world, { at, every, how, ms, status, what, ...shape }) {
    let writes = 0;
    const pass = admissionWebhook(() => ({ allowed: true }));
    const deny = admissionWebhook(() => ({ allowed: false, status }));
    const webhook: SimWebhook = async (body, caller) => {
      const { request } = JSON.parse(body) as { request: { userInfo: { username: string } } };
      const isHarmed = request.userInfo.username.startsWith("ksvm") && writes++ % every === 0;
      if (!isHarmed) return await pass(body, caller);
      return how === "deny" ? await deny(body, caller) : await (BAD_ANSWERS[how] ?? hang)();
    };
    const rule = { ...RULES[what], operations: OPERATIONS };
    await whileInstalled(world, { name: `meddle-${at}`, ms, rule, webhook, shape });
  },
});
