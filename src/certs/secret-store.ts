import type { ObjectMeta } from "../api/meta.ts";
import { MANAGED_BY_LABEL } from "../api/names.ts";
import { managedByOf } from "../api/ours.ts";
import type { Client } from "../kube/client.ts";
import { isAbsent } from "../kube/errors.ts";
import { SECRET_TYPE, type SecretObject } from "./secret-contents.ts";

/** Which Secret. */
export interface SecretRef {
  readonly namespace: string;
  readonly name: string;
}

/** A Secret as it was read. */
export interface StoredSecret {
  /** `undefined` where it does not exist. */
  readonly secret: SecretObject | undefined;
  /** The API server's clock at the time, in milliseconds since the Unix epoch; `undefined` where it did not say. */
  readonly serverTime: number | undefined;
}

/** What a write changes; the rest of the Secret stays. */
export interface SecretChange {
  /** Texts by their keys; `undefined` takes the key away. */
  readonly data: Readonly<Record<string, string | undefined>>;
  /** `undefined` takes the annotation away. */
  readonly annotations?: Readonly<Record<string, string | undefined>>;
}

/** The path of all Secrets of a namespace. */
export function secretsPath(namespace: string): string {
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
}

function pathOf({ name, namespace }: SecretRef): string {
  return `${secretsPath(namespace)}/${encodeURIComponent(name)}`;
}

/** Reads the Secret. It reads from etcd, never from a cache. @throws {ApiError} */
export async function readSecret(client: Client, ref: SecretRef, signal: AbortSignal): Promise<StoredSecret> {
  try {
    const { body, date } = await client.request<SecretObject>("GET", pathOf(ref), { signal });
    return { secret: body, serverTime: date };
  } catch (error) {
    if (!isAbsent(error, ref.name)) throw error;
    // The first certificates have to be valid by the API server's clock as well, which no error tells.
    const { date } = await client.request("GET", "/version", { signal });
    return { secret: undefined, serverTime: date };
  }
}

/**
 * Writes the Secret on top of what was read: creates it where it did not exist, else replaces exactly that
 * resourceVersion, so that of several writers one wins.
 * @throws {ApiError} Conflict if another client wrote it in between: read it again
 */
export async function writeSecret(
  client: Client,
  ref: SecretRef,
  write: { readonly before: SecretObject | undefined; readonly change: SecretChange },
  signal: AbortSignal,
): Promise<void> {
  const body = changed(ref, write.before, write.change);
  if (write.before === undefined) {
    await client.create(secretsPath(ref.namespace), body, { signal });
  } else {
    await client.request("PUT", pathOf(ref), { signal }, { body });
  }
}

function changed(ref: SecretRef, before: SecretObject | undefined, { data, annotations = {} }: SecretChange) {
  const old: Partial<ObjectMeta> | undefined = before?.metadata;
  const { managedFields: _managedFields, ...metadata } = old ?? { ...ref, managedFields: undefined };
  return {
    apiVersion: "v1",
    kind: "Secret",
    // It never changes.
    type: before?.type ?? SECRET_TYPE,
    metadata: {
      ...metadata,
      labels: { ...old?.labels, [MANAGED_BY_LABEL]: managedByOf(old?.labels) },
      annotations: defined({ ...old?.annotations, ...annotations }),
    },
    data: defined({ ...before?.data, ...encoded(data) }),
  };
}

function encoded(texts: SecretChange["data"]): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(texts).map(([key, text]) => [
      key,
      text === undefined ? undefined : Buffer.from(text).toString("base64"),
    ]),
  );
}

function defined(values: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(values).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
}
