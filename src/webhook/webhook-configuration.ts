import { MANAGED_BY, MANAGED_BY_LABEL } from "../api/names.ts";
import { MATCH_CONDITIONS, WEBHOOK_NAME } from "../freeze/rule.ts";

/**
 * The field manager of the caBundle, and of nothing else: GitOps tools that compare the whole configuration are told to
 * leave alone what it owns, so no other manager of ours may own the caBundle.
 */
export const CA_BUNDLE_FIELD_MANAGER = "ksvm-certs";

/**
 * Where the API server finds the webhook; `caBundle` is the base64 of the CA's PEM text. It is left out where another
 * client writes it, such as cert-manager's cainjector: a field that is not applied is not owned.
 */
export type WebhookClientConfig =
  | { readonly url: string; readonly caBundle?: string }
  | {
      readonly service: {
        readonly namespace: string;
        readonly name: string;
        readonly path: string;
        /** @default 443 */
        readonly port?: number;
      };
      readonly caBundle?: string;
    };

/**
 * The default of `--shutdown-drain`, in milliseconds: kube-proxy and load balancers learn of an endpoint that is not
 * ready within one or two seconds; the rest is for slow ones.
 */
export const DEFAULT_DRAIN_MS = 10_000;

/** 5 seconds, which is the webhook's own timeout: after that no API server waits for the answer. */
export const DEFAULT_FINISH_MS = 5_000;

/** Options of {@link webhookConfigurationOf}. */
export interface WebhookConfigurationOptions {
  readonly clientConfig: WebhookClientConfig;
  /** Seconds that the API server waits for an answer, from 1 to 30. @default 5 */
  readonly timeoutSeconds?: number;
  /** Such as cert-manager's `cert-manager.io/inject-ca-from`. @default none */
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A ValidatingWebhookConfiguration of admissionregistration.k8s.io/v1, ready to be created or applied. */
export interface WebhookConfiguration {
  readonly apiVersion: "admissionregistration.k8s.io/v1";
  readonly kind: "ValidatingWebhookConfiguration";
  readonly metadata: {
    readonly name: string;
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly webhooks: readonly Readonly<Record<string, unknown>>[];
}

/**
 * The configuration that sends to the webhook what it has to decide on (KEP-2855, "Proposed Admission Webhook"). It
 * fails closed, yet its matchConditions let only a storage change on a frozen CRD reach the webhook: a stopped webhook
 * blocks no other update of a CRD, the one that repairs the webhook included.
 *
 * It has no namespaceSelector: it asks for cluster-scoped resources alone, and an API server looks at no
 * namespaceSelector where a request has no namespace, unless it is for `namespaces` themselves: such a request "is
 * never exempted". So one that another client adds, as AKS does to every webhook, is left as it is.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace/matcher.go (MatchNamespaceSelector)
 * https://github.com/Azure/AKS/issues/4002
 */
export function webhookConfigurationOf({
  clientConfig,
  timeoutSeconds = 5,
  annotations,
}: WebhookConfigurationOptions): WebhookConfiguration {
  return {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    metadata: {
      name: WEBHOOK_NAME,
      labels: { [MANAGED_BY_LABEL]: MANAGED_BY },
      ...(annotations === undefined ? {} : { annotations }),
    },
    webhooks: [
      {
        name: WEBHOOK_NAME,
        clientConfig,
        rules: [
          {
            apiGroups: ["apiextensions.k8s.io"],
            apiVersions: ["v1"],
            operations: ["UPDATE"],
            resources: ["customresourcedefinitions"],
            scope: "Cluster",
          },
        ],
        matchPolicy: "Equivalent",
        // The default, stated: a selector that another client adds would take objects out of the webhook's sight.
        objectSelector: {},
        matchConditions: MATCH_CONDITIONS,
        failurePolicy: "Fail",
        sideEffects: "None",
        admissionReviewVersions: ["v1"],
        timeoutSeconds,
      },
    ],
  };
}
