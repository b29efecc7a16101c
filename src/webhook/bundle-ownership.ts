import type { ManagedFieldsEntry } from "../api/meta.ts";
import type { KubeObject } from "../old/kube/client.ts";
import { type AppliedPart, KEEPER_FIELD_MANAGER, type WantedObject } from "./object-writer.ts";
import type { WebhookConfiguration } from "./webhook-configuration.ts";

/**
 * The field manager of the caBundle, and of nothing else: GitOps tools that compare the whole configuration are told to leave alone
 * what it owns, so no other manager of ours may own the caBundle.
 */
export const CA_BUNDLE_FIELD_MANAGER = "ksvm-certs";

/**
 * What is applied, and as whom: the caBundle, where one is wanted, as its own manager, first, so that it has an owner when the
 * other manager gives it up. Where our webhook is not there yet it cannot be first: it would be no valid webhook. There the first
 * write has everything, so that the webhook is never there without a caBundle, and the other two hand the caBundle to its owner. A keeper
 * that ends in between leaves the caBundle with the other manager: {@link isBundleOwned}.
 */
export function partsOf(wanted: WantedObject, live: KubeObject | undefined): readonly AppliedPart[] {
  const configuration = wanted as unknown as WebhookConfiguration;
  const [webhook] = configuration.webhooks;
  const { caBundle, ...clientConfig } = clientConfigOf(webhook);
  const rest = { ...configuration, webhooks: [{ ...webhook, clientConfig }] } as unknown as WantedObject;
  const main = { fieldManager: KEEPER_FIELD_MANAGER, fields: rest };
  const whole = { fieldManager: KEEPER_FIELD_MANAGER, fields: wanted };
  if (caBundle === undefined) {
    return [main];
  }
  const bundle = bundlePartOf(configuration, caBundle);
  return webhookIn(live, wanted) !== undefined ? [bundle, main] : [whole, bundle, main];
}

function bundlePartOf({ apiVersion, kind, metadata }: WebhookConfiguration, caBundle: string): AppliedPart {
  const webhooks = [{ name: metadata.name, clientConfig: { caBundle } }];
  const fields = { apiVersion, kind, metadata: { name: metadata.name }, webhooks } as unknown as WantedObject;
  return { fieldManager: CA_BUNDLE_FIELD_MANAGER, fields };
}

/** Whether the caBundle, where one is wanted, has the owner that it is to have. */
export function isBundleOwned(live: KubeObject, wanted: WantedObject): boolean {
  const { managedFields = [] } = live.metadata;
  const { caBundle } = clientConfigOf((wanted as unknown as WebhookConfiguration).webhooks[0]);
  if (caBundle === undefined || managedFields.length === 0) {
    return true;
  }
  const appliers = managedFields.filter((entry) => entry.operation === "Apply" && ownsBundle(entry, wanted));
  const managers = appliers.map(({ manager }) => manager);
  return managers.includes(CA_BUNDLE_FIELD_MANAGER) && !managers.includes(KEEPER_FIELD_MANAGER);
}

/** The one webhook of the configuration, which has its name. */
function webhookIn(live: KubeObject | undefined, { metadata }: WantedObject): object | undefined {
  const { webhooks = [] } = (live ?? {}) as { webhooks?: readonly { readonly name?: string }[] };
  return webhooks.find(({ name }) => name === metadata.name);
}

function clientConfigOf(webhook: object = {}): { readonly caBundle?: string } {
  const { clientConfig = {} } = webhook as { readonly clientConfig?: { readonly caBundle?: string } };
  return clientConfig;
}

/** https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management */
function ownsBundle({ fieldsV1 }: ManagedFieldsEntry, { metadata: { name } }: WantedObject): boolean {
  const path = ["f:webhooks", `k:${JSON.stringify({ name })}`, "f:clientConfig", "f:caBundle"];
  let fields: unknown = fieldsV1;
  for (const key of path) {
    fields = (fields as Readonly<Record<string, unknown>> | undefined)?.[key];
  }
  return fields !== undefined;
}
