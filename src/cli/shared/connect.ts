import { isatty } from "node:tty";
import { loadKubeConfig } from "../../kube/connect/config.ts";
import { type Connection, connectTo } from "../../kube/connection.ts";
import type { RequestObserver } from "../../kube/transport.ts";
import type { ConnectionFlags } from "../flags/global-flags.ts";

const STDIN = 0;

/**
 * Connects to the cluster that the flags and the environment name.
 * @param observer told of every request
 * @throws {KsvmError} as `connectTo()`.
 */
export async function connect(
  flags: ConnectionFlags,
  signal: AbortSignal,
  observer?: RequestObserver,
): Promise<Connection> {
  const environment = { variables: process.env, isTerminal: isatty(STDIN) };
  return await connectTo(loadKubeConfig({ ...flags, environment }), signal, observer);
}
