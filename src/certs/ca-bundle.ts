import type { X509Certificate } from "node:crypto";
import { WEBHOOK_NAME } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { type KubeObject, WEBHOOK_CONFIGURATIONS } from "../kube/objects.ts";
import { isValidAt, periodOf } from "../serving/certificates.ts";
import { CA_BUNDLE_FIELD_MANAGER } from "../webhook/webhook-configuration.ts";
import { certificatesIn, decoded, KEYS, type SecretObject } from "./secret-contents.ts";

/** A ValidatingWebhookConfiguration, as far as certificates go. */
export interface BundleHolder extends KubeObject {
  readonly webhooks?: readonly {
    readonly name: string;
    readonly clientConfig?: { readonly caBundle?: string };
  }[];
}

/**
 * The `caBundle` that goes with a Secret of `ksvm certs` or of cert-manager: base64 of PEM, only certificates.
 * `undefined` where the Secret holds none.
 */
export function caBundleOf(secret: Pick<SecretObject, "data"> | undefined): string | undefined {
  const cas = certificatesIn(decoded(secret, KEYS.bundle));
  return cas.length === 0 ? undefined : bundleOf(cas);
}

/** CAs as a `caBundle`. */
export function bundleOf(cas: readonly X509Certificate[]): string {
  return Buffer.from(pemOf(cas)).toString("base64");
}

/** Certificates as one PEM text. */
export function pemOf(certificates: readonly X509Certificate[]): string {
  return certificates.map((certificate) => certificate.toString()).join("");
}

/** The `caBundle` of our webhook; `undefined` where the configuration has no webhook of our name. */
export function publishedBundleOf(
  configuration: BundleHolder | undefined,
  webhookName = WEBHOOK_NAME,
): string | undefined {
  const webhook = configuration?.webhooks?.find(({ name }) => name === webhookName);
  return webhook && (webhook.clientConfig?.caBundle ?? "");
}

/** Whether a `caBundle` trusts all of these CAs. */
export function trustsAll(caBundle: string, cas: readonly X509Certificate[]): boolean {
  const trusted = casOf(caBundle);
  return cas.every((ca) => isAmong(trusted, ca));
}

/** A published `caBundle` with the CAs of our own that it does not trust; as it is where it trusts all of them. */
export function withOwnCas(published: string, own: string): string {
  const trusted = casOf(published);
  const added = casOf(own).filter((ca) => !isAmong(trusted, ca));
  return added.length === 0 ? published : bundleOf([...trusted, ...added]);
}

/** A `caBundle` of those CAs of another one that do by themselves. */
export function trustingPart(caBundle: string, isNeeded: (caBundle: string) => boolean): string {
  return bundleOf(casOf(caBundle).filter((ca) => isNeeded(bundleOf([ca]))));
}

/** So many CAs of others are kept for replicas, and none that takes more bytes: a Secret takes a megabyte. */
const MAX_KEPT_CAS = 8;
const MAX_KEPT_BYTES = 8_192;

/**
 * The CAs of a published `caBundle` that are none of our own: they may have signed what replicas serve.
 * @param times the same moment by each clock, in milliseconds since the Unix epoch; a CA counts that is valid by one of
 *   them
 */
export function casBesides(
  published: string | undefined,
  own: readonly X509Certificate[],
  times: readonly number[],
): readonly X509Certificate[] {
  const isKept = (ca: X509Certificate): boolean =>
    ca.ca && ca.raw.length <= MAX_KEPT_BYTES && isValidBy(times, ca) && !isAmong(own, ca);
  return casOf(published ?? "")
    .filter(isKept)
    .slice(0, MAX_KEPT_CAS);
}

/** Whether a certificate is valid by one of the clocks. */
export function isValidBy(times: readonly number[], certificate: X509Certificate): boolean {
  return times.some((now) => isValidAt(periodOf(certificate), now));
}

function casOf(caBundle: string): readonly X509Certificate[] {
  return certificatesIn(Buffer.from(caBundle, "base64").toString("utf8"));
}

function isAmong(cas: readonly X509Certificate[], ca: X509Certificate): boolean {
  return cas.some(({ fingerprint256 }) => fingerprint256 === ca.fingerprint256);
}

/** The path of a ValidatingWebhookConfiguration, whose name is a user's choice. */
export function configurationPath(name: string): string {
  return `${WEBHOOK_CONFIGURATIONS}/${encodeURIComponent(name)}`;
}

/** Reads the configuration, `undefined` where it is not installed. @throws {ApiError} */
export function findConfiguration(
  client: Client,
  name: string,
  signal: AbortSignal,
): Promise<BundleHolder | undefined> {
  return client.find<BundleHolder>(configurationPath(name), { signal });
}

/**
 * Writes the caBundle of our webhook on top of the configuration that was read. Read the configuration before the
 * Secret: then a writer that stands still between reading the Secret and this write finds out here that another one
 * continued.
 * @throws {ApiError} Conflict if the configuration changed in between.
 */
export async function publishBundle(
  client: Client,
  configuration: BundleHolder,
  caBundle: string,
  signal: AbortSignal,
): Promise<void> {
  const { name, uid, resourceVersion } = configuration.metadata;
  const body = {
    apiVersion: "admissionregistration.k8s.io/v1",
    kind: "ValidatingWebhookConfiguration",
    // Without the uid an apply would create a configuration that was deleted a moment ago.
    metadata: { name, uid, resourceVersion },
    webhooks: [{ name: WEBHOOK_NAME, clientConfig: { caBundle } }],
  };
  const options = { fieldManager: CA_BUNDLE_FIELD_MANAGER, signal };
  await client.apply(configurationPath(name), body, options);
}
