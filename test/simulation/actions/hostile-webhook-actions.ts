import { WEBHOOK_ANNOTATION } from "../checks/unchanged-objects-check.ts";
import type { WebhookAnswer } from "../model/types.ts";
import { oneIn, oneOf } from "../world/random-choices.ts";
import type { SimWebhook } from "../world/sim-cluster.ts";
import { objectsRule, type WebhookRule, type WebhookShape } from "../world/user-actions.ts";
import { admissionWebhook, hang, mutation } from "../world/webhook-answers.ts";
import type { World } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { kindOf, lastingOf, obstacleLastingOf } from "./choices.ts";

/**
 * A webhook changes every object of a kind that is written, by whomever. `count` and `stamp` change it with each write again, so
 * that a write of what was read is never a write of what is there.
 */
export const mutate = sort<{
  readonly kind: number;
  readonly ms: number;
  readonly how: "mark" | "count" | "spec" | "stamp";
}>({
  name: "mutate",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    ms: lastingOf(random),
    how: oneOf(random, ["mark", "count", "spec", "stamp"]),
  }),
  async play(world, { at, kind, ms, how }) {
    let calls = 0;
    const webhook = admissionWebhook(({ object }) => {
      const { annotations } = object?.metadata ?? {};
      const all = annotations === undefined ? [{ op: "add", path: "/metadata/annotations", value: {} }] : [];
      const path = `/metadata/annotations/${WEBHOOK_ANNOTATION.replace("/", "~1")}${how}`;
      switch (how) {
        case "mark":
          return mutation([...all, { op: "add", path, value: "yes" }]);
        case "count":
          return mutation([...all, { op: "add", path, value: String(++calls) }]);
        case "spec":
          return mutation([{ op: "add", path: "/spec/mutated", value: true }]);
        case "stamp":
          return mutation([{ op: "add", path: "/spec/mutated", value: ++calls }]);
      }
    });
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    await whileInstalled(world, {
      name: `mutate-${at}`,
      rule: objectsRule(plan),
      ms,
      webhook,
      shape: { isMutating: true },
    });
  },
});

/** How a webhook fails. */
export const BAD_ANSWERS: Readonly<Record<string, () => WebhookAnswer | Promise<WebhookAnswer>>> = {
  hang,
  reset: () => ({ error: "read tcp: connection reset by peer" }),
  error: () => ({ status: 500, body: "it fails" }),
  busy: () => ({ status: 429, body: "" }),
  html: () => ({ status: 200, body: "<html></html>" }),
  nothing: () => ({ status: 200, body: "{}" }),
  otherReview: () => ({
    status: 200,
    body: JSON.stringify({
      apiVersion: "admission.k8s.io/v1",
      kind: "AdmissionReview",
      response: { uid: "other", allowed: true },
    }),
  }),
};

/** A webhook for the objects of a kind fails in one way or another, for some time. */
export const failWebhook = sort<{
  readonly kind: number;
  readonly ms: number;
  readonly how: string;
  readonly isMutating: boolean;
  readonly isIgnored: boolean;
  readonly timeoutSeconds: number;
}>({
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
    const webhook = async (): Promise<WebhookAnswer> => await (BAD_ANSWERS[how] ?? hang)();
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    await whileInstalled(world, { name: `fail-${at}`, rule: objectsRule(plan), ms, webhook, shape });
  },
});

/** A webhook denies some objects, with a status and details that look like those of the API server itself. */
export const pretend = sort<{ readonly kind: number; readonly ms: number; readonly status: object }>({
  name: "pretend",
  choose: (random, limits) => ({
    kind: kindOf(random, limits),
    ms: obstacleLastingOf(random),
    status: oneOf(random, [
      { code: 404, reason: "NotFound", details: { name: "widgets-1", kind: "widgets" } },
      { code: 404, reason: "NotFound", details: { name: "default", kind: "namespaces" } },
      { code: 409, reason: "Conflict", details: { name: "widgets-1" }, message: "the object has been modified" },
      { code: 410, reason: "Expired", message: "too old resource version: 1 (2)" },
      { code: 429, reason: "TooManyRequests", details: { retryAfterSeconds: 100_000 } },
      { code: 500, reason: "InternalError", message: 'failed calling webhook "other": EOF' },
      { code: 401, reason: "Unauthorized" },
      { code: 403, reason: "Forbidden", message: 'User "ksvm" cannot patch resource "widgets" in API group ""' },
      { code: 307, reason: "" },
      { code: 0 },
      { code: 413, reason: "RequestEntityTooLarge", details: { retryAfterSeconds: -1 } },
      { code: 504, reason: "Timeout", details: { retryAfterSeconds: 1e12 } },
    ]),
  }),
  async play(world, { at, kind, ms, status }) {
    const webhook = admissionWebhook(({ name }) =>
      name.endsWith("1") ? { allowed: false, status } : { allowed: true },
    );
    const plan = world.kindAt(kind);
    if (plan === undefined) return;
    await whileInstalled(world, { name: `pretend-${at}`, rule: objectsRule(plan), ms, webhook, shape: {} });
  },
});

/** A webhook that is there for some time. */
export interface Installed {
  readonly name: string;
  readonly rule: WebhookRule;
  readonly ms: number;
  readonly webhook: SimWebhook;
  readonly shape: WebhookShape;
}

/** Installs a webhook for some time. It allows everything after that: a restore may bring its configuration back. */
export async function whileInstalled(world: World, { ms, name, rule, shape, webhook }: Installed): Promise<void> {
  const { cluster, schedule, user } = world;
  const url = `https://${name}.sim/`;
  cluster.webhooks.set(url, webhook);
  void user.installWebhook(name, rule, { url, ...shape });
  await world.lasting(ms);
  cluster.webhooks.set(
    url,
    admissionWebhook(() => ({ allowed: true })),
  );
  for (let tries = 0; tries < 100; tries++) {
    const answer = await user.removeWebhook(name, shape);
    if (answer?.status === 200 || answer?.status === 404) return;
    await schedule.wait(1_000);
  }
}
