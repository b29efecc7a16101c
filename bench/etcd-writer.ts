/** At most so many writes are one transaction, as etcd has it by default (`--max-txn-ops`). */
const OPERATIONS = 128;
/** Bytes of the values of one transaction, below the 1.5 MiB that etcd takes by default. */
const MAX_BYTES = 1_000_000;

/**
 * Puts entries straight into etcd, over its JSON gateway: some thousand a second, where an API server takes minutes. API
 * servers see them as if another API server had written them.
 * @throws {Error} where etcd does not answer with 200
 */
export async function putEntries(url: string, entries: Iterable<readonly [key: string, value: string]>): Promise<void> {
  let success: { readonly request_put: { readonly key: string; readonly value: string } }[] = [];
  let bytes = 0;
  const flush = async (): Promise<void> => {
    const reply = await fetch(`${url}/v3/kv/txn`, { method: "POST", body: JSON.stringify({ success }) });
    const text = await reply.text();
    if (!reply.ok) throw new Error(`Cannot write to etcd: it answered ${reply.status}: ${text}`);
    success = [];
    bytes = 0;
  };
  for (const [key, value] of entries) {
    success.push({ request_put: { key: base64(key), value: base64(value) } });
    bytes += value.length;
    if (success.length === OPERATIONS || bytes > MAX_BYTES) await flush();
  }
  if (success.length > 0) await flush();
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
