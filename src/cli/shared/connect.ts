import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { Client } from "../../kube/client.ts";
import { connect as connectBy } from "../../kube/connect.ts";
import type { Send } from "../../kube/http.ts";
import type { ConnectionFlags } from "../flags/global-flags.ts";

/** A connection to a cluster. */
export interface Connection {
  readonly kube: Client;
  readonly close: () => Promise<void>;
}

/**
 * Connects to the cluster that the flags and the environment name.
 * @param around what lies around the `send` of all requests, such as what measures them
 * @throws {KsvmError} Usage for flags that do not go together; as `connect` of src/kube.
 */
export async function connect(
  { as: user, asGroup: groups = [], asUid: uid, context, kubeconfig, server }: ConnectionFlags,
  signal: AbortSignal,
  around?: (send: Send) => Send,
): Promise<Connection> {
  if (user === undefined && (groups.length > 0 || uid !== undefined)) {
    throw new KsvmError("Usage", "Cannot impersonate a group or a UID alone: pass --as as well");
  }
  const as = user === undefined ? undefined : { user, groups, ...(uid === undefined ? {} : { uid }) };
  const { client, close } = await connectBy(
    { as, context, kubeconfig, server, variables: process.env },
    { around, clock: systemClock, random: Math.random, signal },
  );
  return { kube: client, close };
}
