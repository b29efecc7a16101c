import type { FastifyBaseLogger } from "fastify";
import type { Logger } from "pino";
import { isOurs } from "../api/ours.ts";
import type { Clock } from "../clock.ts";
import { WEBHOOK_NAME } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import {
  BINDINGS,
  type KubeObject,
  type ManagedFieldsEntry,
  POLICIES,
  WEBHOOK_CONFIGURATIONS,
} from "../kube/objects.ts";
import { FailureLog } from "../observability/failure-log.ts";
import {
  type AppliedPart,
  KEEPER_FIELD_MANAGER,
  mergePatchTo,
  ObjectKeeper,
  type ObjectObserver,
  type WantedObject,
} from "./object-keeper.ts";
import { WARN_POLICY_NAME, warnPolicy } from "./warn-policy.ts";
import { CA_BUNDLE_FIELD_MANAGER, type WebhookConfiguration } from "./webhook-configuration.ts";

/** What a {@link ConfigurationKeeper} needs. */
export interface ConfigurationKeeperOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Pick<FastifyBaseLogger, "info" | "warn">;
  /**
   * The configuration as it is to be, by `webhookConfigurationOf`, for what is there; `undefined` as long as it is not
   * known, such as before there is a CA. Without a `caBundle` that field is left to its writer.
   */
  readonly wanted: (live: KubeObject | undefined) => WebhookConfiguration | undefined;
  /** As in `ObjectRepairOptions`, for the configuration. @default what is wanted never changes */
  readonly freshen?: (signal: AbortSignal) => Promise<void>;
  /** Told of the configuration whenever it was read. @default none */
  readonly observer?: ObjectObserver;
  /** Milliseconds after which everything is looked at although nothing was heard of it. @default 300000 */
  readonly resyncMs?: number;
}

/**
 * By these cert-manager's cainjector knows whose CA to write. Without them a configuration that was deleted would stay
 * without a caBundle.
 *
 * https://cert-manager.io/docs/concepts/ca-injector/
 */
const CAINJECTOR_ANNOTATIONS = [
  "cert-manager.io/inject-ca-from",
  "cert-manager.io/inject-ca-from-secret",
  "cert-manager.io/inject-apiserver-ca",
];

/**
 * Keeps the ValidatingWebhookConfiguration in force, and beside them the policy that warns of a freeze that is lifted.
 * Whatever is changed, emptied or added is restored within about a second, what is deleted about five seconds later,
 * and less often where another client goes on changing it.
 *
 * S1 does not rest on any of this: each run proves its freeze on every API server before it prunes, whichever client
 * wrote the configuration (src/freeze/prove.ts).
 */
export class ConfigurationKeeper {
  readonly #keepers: readonly ObjectKeeper[];

  constructor(options: ConfigurationKeeperOptions) {
    const { freshen, wanted, observer, ...shared } = options;
    const { policy, binding } = warnPolicy();
    const name = WARN_POLICY_NAME;
    this.#keepers = [
      new ObjectKeeper({
        ...shared,
        collection: WEBHOOK_CONFIGURATIONS,
        name: WEBHOOK_NAME,
        wanted,
        freshen,
        parts: partsOf,
        isOwned: isBundleOwned,
        carriedAnnotations: CAINJECTOR_ANNOTATIONS,
        replacement: webhooksOf,
        observer,
      }),
      new ObjectKeeper({ ...shared, collection: POLICIES, name, wanted: () => policy, replacement: specOf }),
      new ObjectKeeper({
        ...shared,
        collection: BINDINGS,
        name,
        wanted: () => binding,
        replacement: specOf,
      }),
    ];
  }

  /** Has everything looked at soon, as after a change of what is wanted. */
  refresh(): void {
    for (const keeper of this.#keepers) {
      keeper.kick();
    }
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    await Promise.all(this.#keepers.map((keeper) => keeper.run(signal)));
  }
}

interface LiveWebhook {
  readonly name?: string;
  readonly clientConfig?: { readonly caBundle?: string };
  readonly namespaceSelector?: object;
}

/**
 * The webhooks as they are wanted, with the `caBundle` and the namespaceSelector that are there: this write is not that
 * of their owners.
 */
function webhooksOf(live: KubeObject, wanted: WantedObject): object {
  const liveWebhooks = (live as { webhooks?: readonly LiveWebhook[] }).webhooks ?? [];
  const { webhooks } = wanted as unknown as WebhookConfiguration;
  return {
    webhooks: webhooks.map((webhook) => {
      const { clientConfig } = webhook as { clientConfig: object };
      const { clientConfig: liveConfig, namespaceSelector } =
        liveWebhooks.find(({ name }) => name === webhook["name"]) ?? {};
      const caBundle = liveConfig?.caBundle === undefined ? {} : { caBundle: liveConfig.caBundle };
      const selector = namespaceSelector === undefined ? {} : { namespaceSelector };
      return { ...webhook, ...selector, clientConfig: { ...clientConfig, ...caBundle } };
    }),
  };
}

function specOf(_live: KubeObject, wanted: WantedObject): object {
  return { spec: mergePatchTo((wanted as unknown as { spec: object }).spec) };
}

/**
 * What is applied, and as whom: the caBundle, where one is wanted, as its own manager, first, so that it has an owner
 * when the other manager gives it up. Where our webhook is not there yet it cannot be first: it would be no valid
 * webhook. There the first write has everything, so that the webhook is never there without a caBundle, and the other
 * two hand the caBundle to its owner. A keeper that ends in between leaves the caBundle with the other manager: {@link
 * isBundleOwned}.
 */
function partsOf(wanted: WantedObject, live: KubeObject | undefined): readonly AppliedPart[] {
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
function isBundleOwned(live: KubeObject, wanted: WantedObject): boolean {
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

/** What {@link removeWebhook} needs. */
export interface RemoveWebhookOptions {
  readonly client: Client;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly signal: AbortSignal;
}

/** A replica with other settings may still be going, and put back what was taken away. */
const LOOK_AGAIN_MS = 60_000;
const RETRY_MS = 5_000;

/**
 * Takes away what the {@link ConfigurationKeeper} keeps, if nothing is to be frozen any more, and keeps it
 * away until the signal is aborted. Only what carries our label is taken away.
 */
export async function removeWebhook(options: RemoveWebhookOptions): Promise<void> {
  const { clock, logger, signal } = options;
  const failures = new FailureLog({
    clock,
    logger,
    failing: "Cannot remove the webhook's configuration; trying again",
    working: "The webhook's configuration is removed",
  });
  while (!signal.aborted) {
    let pauseMs = LOOK_AGAIN_MS;
    try {
      await removeOnce(options);
      failures.worked();
    } catch (error) {
      pauseMs = RETRY_MS;
      if (!signal.aborted) {
        failures.failed(error);
      }
    }
    await clock.sleep(pauseMs, signal).catch(() => undefined);
  }
}

async function removeOnce({ client, logger, signal }: RemoveWebhookOptions): Promise<void> {
  for (const [collection, name] of [
    [WEBHOOK_CONFIGURATIONS, WEBHOOK_NAME],
    [BINDINGS, WARN_POLICY_NAME],
    [POLICIES, WARN_POLICY_NAME],
  ] as const) {
    const path = `${collection}/${name}`;
    const found = await client.find<KubeObject>(path, { signal });
    if (found !== undefined && isOurs(found.metadata.labels)) {
      await client.delete(path, { signal });
      logger.info({ path }, "Removed an object that freezes needed");
    }
  }
}
