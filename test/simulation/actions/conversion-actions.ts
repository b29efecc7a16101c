import type { WebhookAnswer } from "../model/types.ts";
import { converterUrl } from "../world/kinds.ts";
import { oneOf } from "../world/random-choices.ts";
import type { SimWebhook } from "../world/sim-cluster.ts";
import { conversionWebhook, hang } from "../world/webhook-answers.ts";
import { CONVERTER } from "../world/world.ts";
import { sort } from "./action-sort.ts";
import { kindOf, obstacleLastingOf } from "./choices.ts";

const HARMS: Readonly<Record<string, SimWebhook>> = {
  hang,
  reset: async () => ({ error: "read tcp: connection reset by peer" }),
  error: async () => ({ status: 503, body: "it fails" }),
  html: async () => ({ status: 200, body: "<html></html>" }),
  refuse: conversionWebhook(({ metadata, ...rest }, apiVersion) => {
    if (metadata.name.endsWith("3")) throw new Error(`${metadata.name} cannot be converted`);
    return { ...rest, metadata, apiVersion };
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
  text: ({ kind, how }, names) => `the webhook that converts ${names.crd(kind)} does harm: ${how}`,
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
