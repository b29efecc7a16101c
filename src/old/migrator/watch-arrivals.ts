import { UNSEEN_ARRIVALS } from "../apiservers/arrivals.ts";
import { WATCH_IDENTITIES } from "../apiservers/server-arrivals.ts";
import { missingOf, textOfMissing } from "./access-check.ts";
import type { RunContext } from "./run-context.ts";

/**
 * Does the work of a run while it is watched which API servers come and go. Who names them may do without the right to watch,
 * and is told what is not known then.
 */
export async function watchingArrivals<T>(context: RunContext, work: (watched: RunContext) => Promise<T>): Promise<T> {
  const { areServersNamed = false, arrivals, client, emit, signal } = context;
  const missing = areServersNamed ? await missingOf(context, WATCH_IDENTITIES) : [];
  if (missing.length === 0) {
    return await arrivals.during(client, () => work(context), signal);
  }
  emit({
    type: "warning",
    message:
      `Cannot prove that no other API server joins and leaves during this run: ${textOfMissing(missing)}. Until the run has ended, ` +
      "start none with another version or EncryptionConfiguration: what it writes may be left in the old encoding",
  });
  return await work({ ...context, arrivals: UNSEEN_ARRIVALS });
}
