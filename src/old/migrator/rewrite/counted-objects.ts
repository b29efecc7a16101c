import { resourceNameOf } from "../../../api/migration.ts";
import { KsvmError } from "../../../errors.ts";
import type { ListedPage } from "../../kube/listed-page.ts";
import type { Resource } from "../../kube/resources.ts";

/** How many objects an API server says follow where a continue token leads, in the state that the page with that token shows. */
export interface Following {
  readonly token: string;
  readonly resourceVersion: string;
  readonly count: number;
}

/** The same beside the token, as it is kept in the cluster. */
export type KeptFollowing = Omit<Following, "token">;

/** What is kept of it beside the token. */
export function keptOf({ count, resourceVersion }: Following): KeptFollowing {
  return { resourceVersion, count };
}

/** What was read from the cluster; `undefined` where it is no whole one. */
export function keptFollowingIn(value: unknown): KeptFollowing | undefined {
  const { count, resourceVersion } = (value ?? {}) as Record<string, unknown>;
  const isWhole = Number.isSafeInteger(count) && typeof resourceVersion === "string";
  return isWhole ? { resourceVersion, count: count as number } : undefined;
}

/** What a page says of those behind it; `undefined` where it is the last one, and where the API server does not count. */
export function followingOf(page: ListedPage): Following | undefined {
  const { continueToken: token, remainingItemCount: count = 0, resourceVersion } = page;
  return token === undefined || count <= 0 ? undefined : { token, resourceVersion, count };
}

/** How a page was asked for. */
export interface Asked {
  readonly limit: number;
  readonly token: string | undefined;
}

/**
 * Objects that are missing from a page by what it says itself. An API server that counts what follows a page has filled it: it
 * only counts where there is no selector, and so always where nothing but a limit was asked for. Others, as an aggregated API server
 * that looks for objects which match, may leave a page short, and do not count.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/continue.go
 */
export function missingByItself({ continueToken, items, remainingItemCount }: ListedPage, { limit }: Asked): number {
  const isFilled = continueToken !== undefined && remainingItemCount !== undefined;
  return isFilled ? Math.max(0, limit - items.length) : 0;
}

/** Objects that are missing from a page by what the page before it says; none where it shows another state, as after a token expired. */
export function missingBehind(
  following: Following | undefined,
  { continueToken, items, resourceVersion }: ListedPage,
  { limit, token }: Asked,
): number {
  if (following === undefined || following.token !== token || following.resourceVersion !== resourceVersion) {
    return 0;
  }
  const expected = continueToken === undefined ? following.count : Math.min(limit, following.count);
  return Math.max(0, expected - items.length);
}

/**
 * Whether a page that was asked for with a limit of 1, at the token that objects follow, is counted as the page before it says. kine from
 * 0.11.4 to 0.11.8 counts the objects before a token as well. Where no other page follows, there is one object at most.
 *
 * https://github.com/k3s-io/kine/commit/19618f9
 */
export function confirms({ count }: Following, { continueToken, remainingItemCount = 0 }: ListedPage): boolean {
  return count === (continueToken === undefined ? 1 : 1 + remainingItemCount);
}

/** Of lists that have fewer objects than the API server counts. */
export function objectsLeftOut(resource: Resource, missing: number): KsvmError {
  const those = missing === 1 ? "1 object is" : `${missing} objects are`;
  const text =
    `Cannot go on: ${those} missing from a list of "${resourceNameOf(resource)}", by the count of the API server: ` +
    "something between ksvm and the API server leaves objects out, such as a gateway whose role denies some; " +
    "connect to the API server directly, or with a role that sees all objects";
  return new KsvmError("Forbidden", text);
}
