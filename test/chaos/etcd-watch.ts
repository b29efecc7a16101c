import type { StoredChange } from "./stored-state.ts";

/** Which keys to watch, and since when. */
export interface WatchOptions {
  readonly from: string;
  /** Up to but not including this key. */
  readonly to: string;
  readonly startRevision: number;
  readonly signal: AbortSignal;
}

interface WatchReply {
  readonly result?: {
    readonly canceled?: boolean;
    readonly compact_revision?: string;
    readonly events?: readonly {
      readonly type?: "DELETE";
      readonly kv: { readonly key: string; readonly value?: string; readonly mod_revision: string };
    }[];
  };
}

/** The writes from the start revision on were compacted away: the reader has to begin again. */
export class CompactedError extends Error {
  override readonly name = "CompactedError";
}

/**
 * Every write to a range of keys, in order, over etcd's JSON gateway. Ends where etcd does.
 * @throws {CompactedError} where the start revision is gone.
 */
export async function* watchChanges(url: string, options: WatchOptions): AsyncGenerator<readonly StoredChange[]> {
  const { from, to, startRevision, signal } = options;
  const create_request = { key: base64(from), range_end: base64(to), start_revision: startRevision };
  const reply = await fetch(`${url}/v3/watch`, { method: "POST", body: JSON.stringify({ create_request }), signal });
  if (!reply.ok || reply.body === null) throw new Error(`Cannot watch etcd: it answered ${reply.status}`);
  for await (const line of linesOf(reply.body)) {
    const { result = {} } = JSON.parse(line) as WatchReply;
    if (result.canceled === true) throw new CompactedError(`Cannot watch etcd from ${startRevision}: it is compacted`);
    const changes = (result.events ?? []).map(({ type, kv }) => ({
      key: Buffer.from(kv.key, "base64").toString(),
      modRevision: Number(kv.mod_revision),
      ...(type === "DELETE" ? {} : { value: Buffer.from(kv.value ?? "", "base64") }),
    }));
    if (changes.length > 0) yield changes;
  }
}

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let parts: string[] = [];
  for await (const chunk of body) {
    const [head = "", ...rest] = decoder.decode(chunk, { stream: true }).split("\n");
    parts.push(head);
    for (const next of rest) {
      yield parts.join("");
      parts = [next];
    }
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString("base64");
}
