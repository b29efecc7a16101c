import { isIP } from "node:net";

/** The default of `--cluster-domain`. */
export const DEFAULT_CLUSTER_DOMAIN = "cluster.local";

/** Who the webhook is called by. */
export interface ServiceNames {
  readonly namespace: string;
  readonly service: string;
  /** @default {@link DEFAULT_CLUSTER_DOMAIN} */
  readonly clusterDomain?: string;
  /** Further DNS names and IP addresses. @default none */
  readonly extraNames?: readonly string[];
}

/**
 * The name by which API servers call the Service. They take no other:
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/util/webhook/client.go
 */
export function serverNameOf({ service, namespace }: ServiceNames): string {
  return `${service}.${namespace}.svc`;
}

/**
 * The host of a URL, as certificates have it: an IPv6 address without brackets.
 * @throws {TypeError} where it is no URL
 */
export function hostIn(url: string): string {
  return new URL(url).hostname.replaceAll(/[[\]]/g, "");
}

/** Every name that the serving certificate must be valid for: those that DNS gives the Service, and further ones. */
export function dnsNamesOf(names: ServiceNames): readonly string[] {
  const { service, namespace, clusterDomain = DEFAULT_CLUSTER_DOMAIN, extraNames = [] } = names;
  const serverName = serverNameOf(names);
  const own = [serverName, `${serverName}.${clusterDomain}`, `${service}.${namespace}`, service];
  return [...new Set([...own, ...extraNames.filter((name) => isIP(name) === 0)])];
}

/** The DNS names and IP addresses of a certificate. */
export function namesIn({ subjectAltName = "" }: { readonly subjectAltName?: string | undefined }): readonly string[] {
  return [...subjectAltName.matchAll(/(?:^|, )(?:DNS|IP Address):([^",]+)(?=, |$)/g)].map(([, name = ""]) => name);
}

/**
 * Whether a certificate of ksvm was issued for an installation in another namespace: each has the name of its Service.
 */
export function isOfAnotherNamespace(
  certificate: { readonly subjectAltName?: string | undefined },
  namespace: string,
): boolean {
  return !namesIn(certificate).some((name) => name.endsWith(`.${namespace}.svc`));
}

/** The IP addresses among the further names. */
export function ipAddressesOf({ extraNames = [] }: ServiceNames): readonly string[] {
  return [...new Set(extraNames.filter((name) => isIP(name) !== 0))];
}
