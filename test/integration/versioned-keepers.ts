import pino from "pino";
import type { Test } from "tap";
import { GENERATION_ANNOTATION, WEBHOOK_NAME } from "../../src/api/names.ts";
import { systemClock } from "../../src/clock.ts";
import type { FreezePolicy, PolicyObject } from "../../src/freeze/freeze-policy.ts";
import type { ApiClient, KubeObject } from "../../src/kube/client.ts";
import { POLICIES, type Resource, WEBHOOK_CONFIGURATIONS } from "../../src/kube/resources.ts";
import { watchObject } from "../../src/kube/watch.ts";
import { ConfigurationKeeper } from "../../src/webhook/configuration-keeper.ts";
import type { DeferenceTimes } from "../../src/webhook/deference.ts";
import { WARN_POLICY_NAME, warnPolicy } from "../../src/webhook/warn-policy.ts";
import { type WebhookConfiguration, webhookConfigurationOf } from "../../src/webhook/webhook-configuration.ts";

/** What a made-up version of ksvm ships: its rules differ from those of every other one. */
export interface Shipped {
  readonly configuration: WebhookConfiguration;
  readonly policy: FreezePolicy;
}

/**
 * @param generation what it stamps; `undefined` is no stamp at all, as a version that knows of none
 * @param word tells its rules from those of others: seconds of the webhook's timeout, and a word in the policy
 */
export function shippedBy(generation: number | undefined, word: number, caBundle?: string): Shipped {
  const bundle = caBundle === undefined ? {} : { caBundle };
  const clientConfig = { url: "https://webhook.example.com/validate", ...bundle };
  const { policy, binding } = warnPolicy();
  const [validation = {}] = policy.spec["validations"] as readonly object[];
  const spec = { ...policy.spec, validations: [{ ...validation, message: `the freeze is lifted (${word})` }] };
  return {
    configuration: stamped(webhookConfigurationOf({ clientConfig, timeoutSeconds: word }), generation),
    policy: { policy: stamped({ ...policy, spec }, generation), binding: stamped(binding, generation) },
  };
}

function stamped<T extends WebhookConfiguration | PolicyObject>(object: T, generation: number | undefined): T {
  const { annotations: _, ...metadata } = object.metadata;
  const annotations = { [GENERATION_ANNOTATION]: String(generation) };
  return { ...object, metadata: generation === undefined ? metadata : { ...metadata, annotations } };
}

/** A running {@link ConfigurationKeeper} of a made-up version. */
export interface VersionedKeeper {
  readonly lines: readonly { readonly msg?: string; readonly resource?: string }[];
  readonly end: () => Promise<void>;
}

/** Starts what every replica of a version runs. It ends with the test. */
export function startVersion(
  t: Test,
  api: ApiClient,
  shipped: Shipped,
  deference: DeferenceTimes = {},
): VersionedKeeper {
  const stop = new AbortController();
  const lines: { readonly msg?: string; readonly resource?: string }[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(JSON.parse(line) as object) });
  const { configuration, policy } = shipped;
  const options = { client: api, clock: systemClock, logger, policy, deference };
  const running = new ConfigurationKeeper({ ...options, wanted: () => configuration }).run(stop.signal);
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  t.teardown(end);
  return { lines, end };
}

/** The object as far as these tests look at it. */
export interface Kept extends KubeObject {
  readonly metadata: KubeObject["metadata"] & { readonly name: string };
  readonly webhooks?: readonly {
    readonly timeoutSeconds?: number;
    readonly failurePolicy?: string;
    readonly clientConfig: { readonly caBundle?: string };
  }[];
  readonly spec?: { readonly validations?: readonly { readonly message?: string }[] };
}

/** What tells the rules of one version from those of another. */
export function wordOf({ webhooks, spec }: Kept): number {
  const message = spec?.validations?.[0]?.message ?? "";
  return webhooks?.[0]?.timeoutSeconds ?? Number(/\((\d+)\)$/.exec(message)?.[1] ?? 0);
}

/** What is kept, by its resource and name. */
export const KEPT: readonly (readonly [Resource, string])[] = [
  [WEBHOOK_CONFIGURATIONS, WEBHOOK_NAME],
  [POLICIES, WARN_POLICY_NAME],
];

/** Every state of an object from now on. */
export async function statesFromNow(api: ApiClient, [resource, name]: readonly [Resource, string]) {
  const { metadata } = await api.listMetadata(resource, { limit: 1 });
  const [stop, states] = [new AbortController(), new Array<Kept>()];
  const watching = (async () => {
    const watch = { name, resourceVersion: metadata.resourceVersion, signal: stop.signal };
    for await (const event of watchObject<Kept>(api.transport, resource, watch)) {
      if ("object" in event && event.type !== "DELETED") states.push(event.object);
    }
  })();
  return {
    states: states as readonly Kept[],
    end: async (): Promise<readonly Kept[]> => {
      stop.abort();
      await watching;
      return states;
    },
  };
}

/** How often the rules of one version took the place of those of another. */
export function flipsIn(states: readonly Kept[]): number {
  const words = states.map(wordOf);
  return words.filter((word, index) => index > 0 && word !== words[index - 1]).length;
}
