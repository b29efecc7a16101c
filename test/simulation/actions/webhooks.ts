import { CRDS, LEASES, MIGRATIONS, STORAGE_STATES } from "../../api-client.ts";
import { WEBHOOK_ANNOTATION } from "../checks/objects.ts";
import type { SimWebhook } from "../world/cluster.ts";
import { resourceOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random.ts";
import { objectsRule, type WebhookRule, type WebhookShape } from "../world/users.ts";
import { admissionWebhook, BAD_ANSWERS, hang, mutation } from "../world/webhooks.ts";
import type { World } from "../world/world.ts";
import { hasController, hasCrd, kindOf, lastingOf, obstacleLastingOf, sort } from "./action.ts";

// What the webhooks of others do to what is written.

const PASS = admissionWebhook(() => ({ allowed: true }));

interface Installed {
  readonly name: string;
  readonly rule: WebhookRule;
  readonly ms: number;
  readonly webhook: SimWebhook;
  readonly shape?: WebhookShape;
}

/** Installs a webhook for some time. It allows everything after that. */
async function whileInstalled(world: World, { ms, name, rule, shape = {}, webhook }: Installed): Promise<void> {
  const { cluster, user } = world;
  const url = `https://${name}.sim/`;
  cluster.webhooks.set(url, webhook);
  void user.installWebhook(name, rule, { url, ...shape });
  await world.lasting(ms);
  cluster.webhooks.set(url, PASS);
  await user.insist(() => user.removeWebhook(name, shape));
}

/**
 * A webhook changes every object of a kind that is written, by whomever. `count` and `stamp` change it with each write again, so
 * that a write of what was read is never a write of what is there.
 */
const mutate = sort<{ readonly kind: number; readonly ms: number; readonly how: string }>({
  name: "mutate",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    ms: lastingOf(random),
    how: oneOf(random, ["mark", "count", "spec", "stamp"]),
  }),
  async play(world, { at, kind, ms, how }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    let calls = 0;
    const webhook = admissionWebhook(({ object }) => {
      const value = { mark: "yes", count: String(++calls), spec: true, stamp: calls }[how];
      if (how === "spec" || how === "stamp") return mutation([{ op: "add", path: "/spec/mutated", value }]);
      const { annotations } = object?.metadata ?? {};
      const all = annotations === undefined ? [{ op: "add", path: "/metadata/annotations", value: {} }] : [];
      const path = `/metadata/annotations/${WEBHOOK_ANNOTATION.replace("/", "~1")}${how}`;
      return mutation([...all, { op: "add", path, value }]);
    });
    await whileInstalled(world, {
      name: `mutate-${at}`,
      rule: objectsRule(plan),
      ms,
      webhook,
      shape: { isMutating: true },
    });
  },
});

/** What ksvm writes beside objects, policies and webhook configurations; those two no webhook is asked about. */
const RULES: Readonly<Record<string, WebhookRule>> = {
  crds: { group: CRDS.group, resources: [CRDS.resource] },
  prunes: { group: CRDS.group, resources: [`${CRDS.resource}/status`] },
  leases: { group: LEASES.group, resources: [LEASES.resource] },
  migrations: { group: MIGRATIONS.group, resources: [MIGRATIONS.resource] },
  migrationStatus: { group: MIGRATIONS.group, resources: [`${MIGRATIONS.resource}/status`] },
  states: { group: STORAGE_STATES.group, resources: [STORAGE_STATES.resource, `${STORAGE_STATES.resource}/status`] },
};

/**
 * A webhook denies writes with one of many statuses, hangs, or fails, for some time: writes of objects by whomever, some of them by their
 * names, or what ksvm writes into CRDs, Leases, migrations or StorageStates.
 */
const harm = sort<
  WebhookShape & {
    readonly what: string;
    /** Whose objects, where it is about objects. */
    readonly kind: number;
    readonly how: string;
    readonly status: object;
    /** One in so many writes is harmed. */
    readonly every: number;
    readonly ms: number;
  }
>({
  name: "harm",
  weight: 4,
  choose(random, limits) {
    const kind = kindOf(random, limits);
    const of = limits.kinds[kind];
    const gone = of === undefined ? "" : `${resourceOf(of)} "${of.plural}-1" not found`;
    const whats = [
      "objects",
      "objects",
      "objects",
      "leases",
      ...(hasCrd(limits) ? ["crds", "prunes"] : []),
      ...(hasController(limits) ? ["migrations", "migrationStatus", "migrationStatus", "states"] : []),
    ];
    const retry = oneIn(random, 4) ? { details: { retryAfterSeconds: oneOf(random, [-1, 1, 30, 100_000]) } } : {};
    const reasons = ["", "AlreadyExists", "Conflict", "Expired", "Forbidden", "Gone", "Invalid", "NotFound", "Timeout"];
    return {
      what: oneOf(random, whats),
      kind,
      how: oneIn(random, 2) ? "deny" : oneOf(random, Object.keys(BAD_ANSWERS)),
      status: {
        code: oneOf(random, [0, 307, 400, 401, 403, 404, 404, 409, 410, 413, 422, 429, 500, 503, 504]),
        reason: oneOf(random, [...reasons, "TooManyRequests"]),
        message: oneOf(random, [gone, "no", ""]),
        ...retry,
      },
      every: oneOf(random, [1, 2, 2, 5]),
      isMutating: oneIn(random, 4),
      isIgnored: oneIn(random, 5),
      timeoutSeconds: oneOf(random, [1, 10, 30]),
      ms: obstacleLastingOf(random),
    };
  },
  async play(world, { at, every, how, kind, ms, status, what, ...shape }) {
    const plan = world.plan.kinds[kind];
    const others = RULES[what];
    if (plan === undefined) return;
    let writes = 0;
    const denial = admissionWebhook(() => ({ allowed: false, status }));
    const webhook: SimWebhook = async (body) => {
      const { request } = JSON.parse(body) as { request: { name: string; userInfo: { username: string } } };
      const isOurs = request.userInfo.username.startsWith("ksvm");
      const isHarmed = others === undefined ? request.name.length % every === 0 : isOurs && writes++ % every === 0;
      if (!isHarmed) return await PASS(body);
      return how === "deny" ? await denial(body) : await (BAD_ANSWERS[how] ?? hang)(body);
    };
    const rule =
      others === undefined ? objectsRule(plan) : { ...others, operations: ["CREATE", "UPDATE", "DELETE"] as const };
    await whileInstalled(world, { name: `harm-${at}`, ms, rule, webhook, shape });
  },
});

export const WEBHOOK_ACTIONS = [harm, mutate];
