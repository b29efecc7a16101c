import { decodeStored } from "./decode-stored.ts";

/** One object as etcd holds it. */
export interface StoredObject {
  /** The namespace, for an object that has one. */
  readonly namespace?: string;
  readonly name: string;
  /** The version that it is encoded in, such as "example.com/v1"; empty when the value is encrypted. */
  readonly apiVersion: string;
  /** Empty when the value is encrypted. */
  readonly kind: string;
  /**
   * Which provider and key encrypted it, such as "k8s:enc:aescbc:v1:key1", or "k8s:enc:kms:v2:NAME:KEYID" of a KMS v2 plugin; absent
   * for a plain value.
   */
  readonly encryptedWith?: string;
  /** etcd's revision of the last write; the apiserver shows it as resourceVersion. */
  readonly modRevision: number;
  /** How often it was written since it was created, its creation included, as etcd counts. */
  readonly version: number;
  readonly raw: Buffer;
}

type TypeMeta = Pick<StoredObject, "apiVersion" | "kind" | "encryptedWith">;

const KMS_V2 = "k8s:enc:kms:v2:";

/**
 * Reads version and kind from a stored value: JSON (custom resources, CRDs), CBOR (custom resources), protobuf (most built-in kinds), or encrypted.
 * @throws {Error} when it is none of them
 */
export function typeMetaOf(raw: Buffer): TypeMeta {
  const start = raw.toString("latin1", 0, 256);
  const encryptedWith = /^(k8s:enc:[^:]+:[^:]+:[^:]+):/.exec(start)?.[1];
  if (encryptedWith?.startsWith(KMS_V2)) {
    const keyId = kmsKeyIdOf(raw.subarray(encryptedWith.length + 1));
    return { apiVersion: "", kind: "", encryptedWith: `${encryptedWith}:${keyId}` };
  }
  if (encryptedWith !== undefined) return { apiVersion: "", kind: "", encryptedWith };
  if (start.startsWith("k8s\0")) return protobufTypeMeta(raw.subarray(4));
  const { apiVersion, kind } = decodeStored(raw) as { apiVersion?: string; kind?: string };
  return { apiVersion: apiVersion ?? "", kind: kind ?? "" };
}

// After the magic bytes comes a runtime.Unknown whose first field is its TypeMeta: apiVersion (1) and kind (2). All
// three are shorter than 128 bytes, so each length is one byte.
// https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/runtime/generated.proto
function protobufTypeMeta(raw: Buffer): TypeMeta {
  const fields: Record<number, string> = {};
  const end = 2 + (raw[1] ?? 0);
  for (let at = 2; at < end; ) {
    const length = raw[at + 1] ?? 0;
    fields[(raw[at] ?? 0) >> 3] = raw.toString("utf8", at + 2, at + 2 + length);
    at += 2 + length;
  }
  return { apiVersion: fields[1] ?? "", kind: fields[2] ?? "" };
}

/**
 * The key id in a KMS v2 envelope: field 2 of an EncryptedObject. The fields before it, data (1), and after it have a length each.
 * @throws {Error} when there is none
 *
 * https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/storage/value/encrypt/envelope/kmsv2/v2/api.proto
 */
export function kmsKeyIdOf(envelope: Buffer): string {
  for (let at = 0; at < envelope.length; ) {
    const field = (envelope[at] ?? 0) >> 3;
    let length = 0;
    at++;
    // A length is a varint: seven bits in each byte, the lowest first.
    for (let shift = 0, more = true; more; shift += 7, at++) {
      const byte = envelope[at] ?? 0;
      length |= (byte & 0x7f) << shift;
      more = byte > 0x7f;
    }
    if (field === 2) return envelope.toString("utf8", at, at + length);
    at += length;
  }
  throw new Error("Cannot find a key id in the envelope of a KMS v2 plugin");
}
