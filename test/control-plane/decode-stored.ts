import { decode } from "cborg";

/** What CBOR in etcd begins with: the tag that says that CBOR follows. https://www.rfc-editor.org/rfc/rfc8949.html#section-3.4.6 */
const CBOR_START = Buffer.from("d9d9f7", "hex");
const SELF_DESCRIBED = 55_799;
/** Bytes that stand for their base64. */
const LATER_BASE64 = 22;

/** Whether a stored value is CBOR, as an API server with the feature gate CBORServingAndStorage writes custom resources. */
export function isCbor(raw: Buffer): boolean {
  return raw.subarray(0, CBOR_START.length).equals(CBOR_START);
}

/**
 * The object in a stored value, which is JSON or CBOR.
 * @throws {Error} when it is neither, as protobuf or an encrypted value
 */
export function decodeStored(raw: Buffer): unknown {
  return isCbor(raw) ? decodeCbor(raw) : JSON.parse(raw.toString());
}

// Kubernetes writes every string as a byte string, those that are keys too, and bytes with a tag:
// https://github.com/kubernetes/apimachinery/blob/v0.36.3/pkg/runtime/serializer/cbor/internal/modes/encode.go
function decodeCbor(raw: Buffer): unknown {
  const tags = {
    [SELF_DESCRIBED]: (value: () => unknown): unknown => value(),
    [LATER_BASE64]: (value: () => unknown): unknown => Buffer.from(value() as Uint8Array).toString("base64"),
  };
  return plainOf(decode(raw, { tags, useMaps: true }));
}

/** The same with objects for maps and text for bytes. */
function plainOf(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString();
  if (Array.isArray(value)) return value.map(plainOf);
  if (!(value instanceof Map)) return value;
  return Object.fromEntries([...value].map(([key, one]) => [plainOf(key), plainOf(one)]));
}
