import { CRDS, LEASES, MIGRATIONS, STORAGE_STATES } from "../../../src/kube/resources.ts";
import { WEBHOOK_ANNOTATION } from "../checks/objects.ts";
import type { SimWebhook } from "../world/cluster.ts";
import { converterUrl, resourceOf } from "../world/kinds.ts";
import { oneIn, oneOf } from "../world/random.ts";
import { objectsRule, type WebhookRule, type WebhookShape } from "../world/users.ts";
import { admissionWebhook, BAD_ANSWERS, conversionWebhook, CONVERTER, hang, mutation } from "../world/webhooks.ts";
import type { World } from "../world/world.ts";
import { hasController, hasCrd, kindOf, lastingOf, obstacleLastingOf, sort } from "./action.ts";

// What the webhooks of others do to what is written, and to conversions.

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

/** A webhook denies the objects of a kind, half of them by their names, with a status of its own, for some time. */
const deny = sort<{ readonly kind: number; readonly ms: number; readonly status: object }>({
  name: "deny",
  weight: 2,
  choose: (random, limits) => {
    const kind = kindOf(random, limits);
    const code = oneOf(random, [0, 307, 400, 401, 403, 404, 404, 409, 410, 413, 422, 429, 500, 503, 504]);
    const reason = oneOf(random, ["", "NotFound", "Conflict", "Gone", "Expired", "TooManyRequests", "Invalid"]);
    const retry = oneIn(random, 4) ? { details: { retryAfterSeconds: oneOf(random, [-1, 1, 30, 100_000]) } } : {};
    const of = limits.kinds[kind];
    const message = of === undefined ? "" : `${resourceOf(of)} "${of.plural}-1" not found`;
    return {
      kind,
      status: { code, reason, message: oneOf(random, [message, "no", ""]), ...retry },
      ms: obstacleLastingOf(random),
    };
  },
  async play(world, { at, kind, ms, status }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const webhook = admissionWebhook(({ name }) =>
      name.length % 2 === 0 ? { allowed: true } : { allowed: false, status },
    );
    await whileInstalled(world, { name: `deny-${at}`, rule: objectsRule(plan), ms, webhook });
  },
});

/** A webhook for the objects of a kind fails in one way or another, for some time. */
const failWebhook = sort<WebhookShape & { readonly kind: number; readonly ms: number; readonly how: string }>({
  name: "failWebhook",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    ms: obstacleLastingOf(random),
    how: oneOf(random, Object.keys(BAD_ANSWERS)),
    isMutating: oneIn(random, 2),
    isIgnored: oneIn(random, 3),
    timeoutSeconds: oneOf(random, [1, 10, 30]),
  }),
  async play(world, { at, kind, ms, how, ...shape }) {
    const plan = world.plan.kinds[kind];
    if (plan === undefined) return;
    const webhook = BAD_ANSWERS[how] ?? hang;
    await whileInstalled(world, { name: `fail-${at}`, rule: objectsRule(plan), ms, webhook, shape });
  },
});

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
} as const;

/**
 * A webhook of others sees what ksvm writes into CRDs, Leases, migrations or StorageStates, and denies it with one of many status codes,
 * hangs, or fails, for some time. What others write passes.
 */
const meddle = sort<
  WebhookShape & {
    readonly what: keyof typeof RULES;
    readonly how: string;
    readonly status: object;
    /** One in so many writes is harmed. */
    readonly every: number;
    readonly ms: number;
  }
>({
  name: "meddle",
  choose: (random, limits) => ({
    what: oneOf(random, [
      "leases",
      ...(hasCrd(limits) ? (["crds", "prunes"] as const) : []),
      ...(hasController(limits) ? (["migrations", "migrationStatus", "migrationStatus", "states"] as const) : []),
    ] as const),
    how: oneIn(random, 2) ? "deny" : oneOf(random, Object.keys(BAD_ANSWERS)),
    status: {
      code: oneOf(random, [0, 307, 400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503, 504]),
      reason: oneOf(random, [
        "",
        "AlreadyExists",
        "Conflict",
        "Expired",
        "Forbidden",
        "Invalid",
        "NotFound",
        "Timeout",
      ]),
      message: oneOf(random, ["", "no", "the object has been modified"]),
    },
    every: oneOf(random, [1, 1, 2, 5]),
    isIgnored: oneIn(random, 6),
    timeoutSeconds: oneOf(random, [1, 10, 30]),
    ms: obstacleLastingOf(random),
  }),
  async play(world, { at, every, how, ms, status, what, ...shape }) {
    let writes = 0;
    const denial = admissionWebhook(() => ({ allowed: false, status }));
    const webhook: SimWebhook = async (body) => {
      const { request } = JSON.parse(body) as { request: { userInfo: { username: string } } };
      const isHarmed = request.userInfo.username.startsWith("ksvm") && writes++ % every === 0;
      if (!isHarmed) return await PASS(body);
      return how === "deny" ? await denial(body) : await (BAD_ANSWERS[how] ?? hang)(body);
    };
    const rule = { ...RULES[what], operations: ["CREATE", "UPDATE", "DELETE"] as const };
    await whileInstalled(world, { name: `meddle-${at}`, ms, rule, webhook, shape });
  },
});

const HARMS: Readonly<Record<string, SimWebhook>> = {
  hang,
  reset: async () => ({ error: "read tcp: connection reset by peer" }),
  error: async () => ({ status: 503, body: "it fails" }),
  html: async () => ({ status: 200, body: "<html></html>" }),
  refuse: conversionWebhook(({ metadata, ...rest }, apiVersion) => {
    if (metadata.name.endsWith("3")) throw new Error(`${metadata.name} cannot be converted`);
    return { ...rest, metadata, apiVersion, spec: { ...rest.spec, converted: apiVersion } };
  }),
  refuseAll: conversionWebhook(() => {
    throw new Error("nothing can be converted");
  }),
  wrongVersion: conversionWebhook((object) => object),
};

/** The webhook that converts the objects of a CRD fails for some time. */
const convert = sort<{ readonly kind: number; readonly how: string; readonly ms: number }>({
  name: "convert",
  weight: 6,
  suits: ({ kinds }) => kinds.some(({ isConverted }) => isConverted === true),
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    how: oneOf(random, Object.keys(HARMS)),
    ms: obstacleLastingOf(random),
  }),
  async play(world, { kind, how, ms }) {
    const { cluster, plan } = world;
    const url = converterUrl(plan.kinds[kind]?.plural ?? "");
    const harm = HARMS[how];
    if (harm === undefined || !cluster.webhooks.has(url)) return;
    const own: SimWebhook = (body) => harm(body);
    cluster.webhooks.set(url, own);
    await world.lasting(ms);
    // Another one may do harm by now.
    if (cluster.webhooks.get(url) === own) cluster.webhooks.set(url, CONVERTER);
  },
});

export const WEBHOOK_ACTIONS = [deny, failWebhook, mutate, meddle, convert];
