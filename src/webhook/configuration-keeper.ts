import type { FastifyBaseLogger } from "fastify";
import { WEBHOOK_NAME } from "../api/names.ts";
import type { Clock } from "../clock.ts";
import type { ApiClient, KubeObject } from "../old/kube/client.ts";
import { mergePatchTo } from "../old/kube/drift.ts";
import { POLICIES, POLICY_BINDINGS, WEBHOOK_CONFIGURATIONS } from "../old/kube/resources.ts";
import { isBundleOwned, partsOf } from "./bundle-ownership.ts";
import { ObjectKeeper } from "./object-keeper.ts";
import type { ObjectObserver } from "./object-repair.ts";
import type { WantedObject } from "./object-writer.ts";
import { WARN_POLICY_NAME, warnPolicy } from "./warn-policy.ts";
import type { WebhookConfiguration } from "./webhook-configuration.ts";

/** What a {@link ConfigurationKeeper} needs. */
export interface ConfigurationKeeperOptions {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly logger: Pick<FastifyBaseLogger, "info" | "warn">;
  /**
   * The configuration as it is to be, by `webhookConfigurationOf`, for what is there; `undefined` as long as it is not known, such as
   * before there is a CA. Without a `caBundle` that field is left to its writer.
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
 * By these cert-manager's cainjector knows whose CA to write. Without them a configuration that was deleted would stay without a caBundle.
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
 * Whatever is changed, emptied or added is restored within about a second, what is deleted about five seconds later, and less often where another client goes on changing it.
 *
 * S1 does not rest on any of this: each run proves its freeze on every API server before it prunes, whichever client wrote the configuration
 * (src/freeze/freeze-proof.ts).
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
        resource: WEBHOOK_CONFIGURATIONS,
        name: WEBHOOK_NAME,
        wanted,
        freshen,
        parts: partsOf,
        isOwned: isBundleOwned,
        carriedAnnotations: CAINJECTOR_ANNOTATIONS,
        replacement: webhooksOf,
        observer,
      }),
      new ObjectKeeper({ ...shared, resource: POLICIES, name, wanted: () => policy, replacement: specOf }),
      new ObjectKeeper({
        ...shared,
        resource: POLICY_BINDINGS,
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

/** The webhooks as they are wanted, with the `caBundle` and the namespaceSelector that are there: this write is not that of their owners. */
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
