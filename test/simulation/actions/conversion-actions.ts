import type { WebhookAnswer } from "../model/types.ts";
import { CRDS, MERGE } from "../world/user-actions.ts";
import { converterUrl, crdNameOf } from "../world/kinds.ts";
import { oneOf } from "../world/random-choices.ts";
import type { SimWebhook } from "../world/sim-cluster.ts";
import { conversionWebhook, hang } from "../world/webhook-answers.ts";
import { CONVERTER } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { hasCrd, kindOf, obstacleLastingOf } from "./choices.ts";

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
  lose: conversionWebhook(({ spec: _spec, ...object }, apiVersion) => ({
    ...object,
    apiVersion,
    spec: { lost: true },
  })),
  wrongVersion: conversionWebhook((object) => object),
  fewer: async (body): Promise<WebhookAnswer> => {
    const { request } = JSON.parse(body) as { request: { uid: string } };
    const response = { uid: request.uid, result: { status: "Success" }, convertedObjects: [] };
    const review = { apiVersion: "apiextensions.k8s.io/v1", kind: "ConversionReview", response };
    return { status: 200, body: JSON.stringify(review) };
  },
};

/** The webhook that converts the objects of a CRD fails, or loses fields, for some time. */
export const convert = sort<{ readonly kind: number; readonly how: string; readonly ms: number }>({
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
    const own: SimWebhook = (body, caller) => harm(body, caller);
    cluster.webhooks.set(url, own);
    await world.lasting(ms);
    // Another one may do harm by now.
    if (cluster.webhooks.get(url) === own) cluster.webhooks.set(url, CONVERTER);
  },
});

const CHANGES: Readonly<Record<string, (url: string) => object>> = {
  webhook: (url) => byWebhook(url),
  elsewhere: (url) => byWebhook(`${url}elsewhere`),
  none: () => ({ strategy: "None", webhook: null }),
};

function byWebhook(url: string): object {
  return { strategy: "Webhook", webhook: { conversionReviewVersions: ["v1"], clientConfig: { url } } };
}

/**
 * A user changes how the objects of a CRD are converted. Only a part of the worlds has it, which `planOf()` chooses: as one more action
 * among the others it would change what each seed stands for.
 */
export const changeConversion = sort<{ readonly kind: number; readonly to: string }>({
  name: "changeConversion",
  weight: 0,
  suits: hasCrd,
  choose: (random, limits) => ({ kind: kindOf(random, limits), to: oneOf(random, Object.keys(CHANGES)) }),
  async play(world, { kind, to }) {
    const [plan, change] = [world.kindAt(kind), CHANGES[to]];
    if (plan === undefined || change === undefined) return;
    const url = converterUrl(plan.plural);
    for (const one of [url, `${url}elsewhere`]) {
      if (!world.cluster.webhooks.has(one)) world.cluster.webhooks.set(one, CONVERTER);
    }
    // By another manager than the one of the versions, whose entry in managedFields keeps its time then.
    const path = `${CRDS}/${crdNameOf(plan)}?fieldManager=operator`;
    const answer = await world.user.send("PATCH", path, { spec: { conversion: change(url) } }, MERGE);
    world.tell("user", `changes the conversion: ${answer?.status ?? "nobody answers"}`);
  },
});
