import type { X509Certificate } from "node:crypto";
import type { ApiClient } from "../kube/client.ts";
import { pemOf } from "./ca-bundle.ts";
import {
  contentsOf,
  decoded,
  isKeptByUs,
  KEYS,
  type SecretContents,
  SEEN_ANNOTATION,
  SWITCHED_ANNOTATION,
} from "./secret-contents.ts";
import { readSecret, type SecretChange, type SecretRef } from "./secret-store.ts";

/** What a Secret holds, `undefined` where nothing of it is to be kept. */
export function usable(contents: SecretContents): SecretContents | undefined {
  return contents.bundle.length === 0 && contents.serving === undefined ? undefined : contents;
}

/**
 * What to write to take over the certificates that an earlier version kept in another Secret, as they are and in the middle of a
 * rotation as well; `undefined` where there are none, or another program keeps them.
 *
 * @param besides CAs that what is taken over does not have, and replicas may go on serving certificates of
 * @throws {ApiError | TransportError}
 */
export async function readEarlier(
  client: ApiClient,
  ref: SecretRef,
  {
    besides,
    signal,
  }: { readonly besides: (own: SecretContents) => readonly X509Certificate[]; readonly signal: AbortSignal },
): Promise<SecretChange | undefined> {
  const { secret } = await readSecret(client, ref, signal);
  const contents = secret !== undefined && isKeptByUs(secret) ? usable(contentsOf(secret)) : undefined;
  if (secret === undefined || contents === undefined) {
    return undefined;
  }
  const data = Object.values(KEYS).map((key) => [key, decoded(secret, key) || undefined]);
  const stamps = [SEEN_ANNOTATION, SWITCHED_ANNOTATION].map((stamp) => [stamp, secret.metadata.annotations?.[stamp]]);
  const kept = besides(contents);
  const keeping = kept.length === 0 ? {} : { [KEYS.bundle]: pemOf([...contents.bundle, ...kept]) };
  const switched = kept.length === 0 ? {} : { [SWITCHED_ANNOTATION]: undefined };
  return {
    data: { ...Object.fromEntries(data), ...keeping },
    annotations: { ...Object.fromEntries(stamps), ...switched },
  };
}
