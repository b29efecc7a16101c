import { isatty } from "node:tty";
import { KsvmError } from "../../errors.ts";
import { loadKubeConfig } from "../../old/kube/connect/config.ts";
import { type Connection, connectTo } from "../../old/kube/connection.ts";
import type { RequestObserver } from "../../old/kube/transport-options.ts";
import type { ConnectionFlags } from "../flags/global-flags.ts";

const STDIN = 0;

/**
 * Connects to the cluster that the flags and the environment name.
 * @param observer told of every request
 * @throws {KsvmError} Usage for flags that do not go together; as `connectTo()`.
 */
export async function connect(
  flags: ConnectionFlags,
  signal: AbortSignal,
  observer?: RequestObserver,
): Promise<Connection> {
  const environment = { variables: process.env, isTerminal: isatty(STDIN) };
  const { as: user, asGroup: groups, asUid: uid, context, kubeconfig, requestTimeoutMs, server } = flags;
  if (user === undefined && (groups !== undefined || uid !== undefined)) {
    throw new KsvmError("Usage", "Cannot impersonate a group or a UID alone: pass --as as well");
  }
  const config = loadKubeConfig({
    environment,
    ...(context === undefined ? {} : { context }),
    ...(kubeconfig === undefined ? {} : { kubeconfig }),
    ...(server === undefined ? {} : { server }),
    ...(user === undefined ? {} : { impersonated: { user, groups, uid } }),
  });
  return await connectTo(config, signal, { observer, timeoutMs: requestTimeoutMs });
}
