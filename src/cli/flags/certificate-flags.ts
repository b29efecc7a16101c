import { SYSTEM_NAMESPACE } from "../../api/migration.ts";
import { CERTIFICATE_SECRET, WEBHOOK_SERVICE } from "../../api/names.ts";
import {
  DEFAULT_APISERVER_DWELL_MS,
  DEFAULT_CA_LIFETIME_MS,
  DEFAULT_RENEW_BEFORE,
  DEFAULT_REPLICA_DWELL_MS,
  DEFAULT_SERVING_LIFETIME_MS,
} from "../../certs/rotation-plan.ts";
import { DEFAULT_CLUSTER_DOMAIN, hostIn } from "../../certs/service-names.ts";
import { KsvmError } from "../../errors.ts";
import { WEBHOOK_NAME } from "../../freeze/rule.ts";
import { parseAddresses, parseNames, parseWebhookUrl } from "./address-parsers.ts";
import type { FlagsOf, FlagTable } from "./flag.ts";
import { duration, optional, value } from "./kinds.ts";
import { anyText, parseShare } from "./parsers.ts";

/** When certificates are renewed. */
export const RENEWAL_FLAGS = {
  "renew-before": value(parseShare, {
    placeholder: "share",
    default: DEFAULT_RENEW_BEFORE,
    defaultText: "1/3",
    help: "a certificate is renewed in this last share of its lifetime",
  }),
} satisfies FlagTable;

/** `--webhook-url`, for every command that has to do with the host in it. */
export const WEBHOOK_URL_FLAGS = {
  "webhook-url": optional(parseWebhookUrl, {
    placeholder: "url",
    help: "URL of the webhook for API servers, such as https://192.0.2.1:9443/validate; if not set, the Service",
  }),
} satisfies FlagTable;

/** Where the certificates are. */
export const SECRET_FLAGS = {
  namespace: value(anyText, {
    placeholder: "namespace",
    default: SYSTEM_NAMESPACE,
    help: "namespace of the Secret and the Service",
  }),
  secret: value(anyText, {
    placeholder: "name",
    default: CERTIFICATE_SECRET,
    help: "Secret that stores the certificates",
  }),
  "webhook-configuration": value(anyText, {
    placeholder: "name",
    default: WEBHOOK_NAME,
    help: "ValidatingWebhookConfiguration that trusts the CA",
  }),
  ...RENEWAL_FLAGS,
} satisfies FlagTable;

/** How certificates are issued and rotated. The controller and the certificate job must agree on them. */
export const ISSUE_FLAGS = {
  service: value(anyText, {
    placeholder: "name",
    default: WEBHOOK_SERVICE,
    help: "Service that API servers call; the serving certificate is valid for its names",
  }),
  "cluster-domain": value(anyText, {
    placeholder: "domain",
    default: DEFAULT_CLUSTER_DOMAIN,
    help: "DNS domain of the cluster",
  }),
  "extra-names": optional(parseNames, {
    placeholder: "names",
    help: "comma-separated list of further DNS names and IP addresses for the serving certificate",
  }),
  "ca-lifetime": duration({ default: DEFAULT_CA_LIFETIME_MS, help: "lifetime of a new CA" }),
  "serving-lifetime": duration({
    default: DEFAULT_SERVING_LIFETIME_MS,
    help: "lifetime of a new serving certificate",
  }),
  "apiserver-dwell": duration({
    default: DEFAULT_APISERVER_DWELL_MS,
    help: "minimum time between every API server showing a new CA and the first use of that CA",
  }),
  "replica-dwell": duration({
    default: DEFAULT_REPLICA_DWELL_MS,
    help: "time for the replicas to load a new certificate before the old CA is removed",
  }),
  "replica-endpoints": optional(parseAddresses, {
    placeholder: "addresses",
    help: "comma-separated list with the HOST:PORT of each replica; if not set, the EndpointSlices of the Service",
  }),
} satisfies FlagTable;

/** The host by which API servers call the webhook, where a user chose a URL. */
export function calledBy({ webhookUrl }: Pick<FlagsOf<typeof WEBHOOK_URL_FLAGS>, "webhookUrl">): string | undefined {
  return webhookUrl === undefined ? undefined : hostIn(webhookUrl);
}

/** The further names of the serving certificate: a webhook that is called by a URL must be valid for the host in it. */
export function furtherNamesOf({
  extraNames = [],
  webhookUrl,
}: Pick<FlagsOf<typeof ISSUE_FLAGS & typeof WEBHOOK_URL_FLAGS>, "extraNames" | "webhookUrl">): readonly string[] {
  return webhookUrl === undefined ? extraNames : [...new Set([...extraNames, hostIn(webhookUrl)])];
}

type Lifetimes = Pick<
  FlagsOf<typeof ISSUE_FLAGS & typeof RENEWAL_FLAGS>,
  "caLifetimeMs" | "renewBefore" | "servingLifetimeMs"
>;

/**
 * A serving certificate never outlives its CA: what is left of the CA when it is replaced must be enough for it.
 * @throws {KsvmError} Usage
 */
export function assertLifetimes({ caLifetimeMs, servingLifetimeMs, renewBefore }: Lifetimes): void {
  if (servingLifetimeMs > caLifetimeMs * renewBefore) {
    throw new KsvmError(
      "Usage",
      `Cannot use these lifetimes: --serving-lifetime (${hoursText(servingLifetimeMs)}) must fit into the last part of ` +
        `--ca-lifetime, in which the CA is renewed (${hoursText(caLifetimeMs * renewBefore)})`,
    );
  }
}

const HOUR_MS = 3_600_000;

function hoursText(ms: number): string {
  return `${ms / HOUR_MS}h`;
}
