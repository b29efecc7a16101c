import type { ObjectMeta } from "./meta.ts";

/** An APIService of apiregistration.k8s.io/v1, as far as it is looked at. */
export interface ApiService {
  readonly metadata: ObjectMeta;
  readonly spec?: { readonly service?: object | null };
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] | null };
}

/** The name of the one APIService of a group and version, which the API server insists on. */
export function apiServiceNameOf(group: string, version: string): string {
  return `${version}.${group}`;
}

/**
 * Whether requests for its group and version go to an aggregated API server. One without a service is of the API server
 * that was asked, or of a CRD; where there is no APIService at all they are served as those.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/types.go
 */
export function isAggregated(found: ApiService | undefined): boolean {
  return (found?.spec?.service ?? null) !== null;
}
