import { systemClock } from "../../clock.ts";
import type { CallContext } from "../../old/retry/call-context.ts";
import { Retrier } from "../../old/retry/retrier.ts";
import type { ConnectionFlags } from "../flags/global-flags.ts";
import type { CliIo } from "../render/io.ts";
import { connect } from "./connect.ts";

/** A user waits for the answer. */
const PATIENCE_MS = 30_000;

/**
 * Does a short piece of work with the cluster that the flags name: requests that fail for a while are tried again for half a minute.
 * @throws what `connect` and the work throw.
 */
export async function withCluster<Result>(
  { signal }: CliIo,
  flags: ConnectionFlags,
  work: (context: CallContext) => Promise<Result>,
): Promise<Result> {
  const connection = await connect(flags, signal);
  try {
    const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: PATIENCE_MS });
    return await work({ client: connection.client, retrier, signal });
  } finally {
    await connection.close();
  }
}
