import { KsvmError } from "../errors.ts";
import { Client, type ClientParts } from "./client.ts";
import { ApiError, mayPass, whose } from "./errors.ts";
import type { Send } from "./http.ts";
import type { KubeconfigOptions } from "./kubeconfig.ts";
import { pauseAfter } from "./retry.ts";
import { senderFor } from "./undici-send.ts";

/** The oldest Kubernetes that ksvm is tested with: five minor releases are supported. */
const OLDEST_MINOR = 32;
/** An API server that is there answers /version at once. */
const FIRST_ANSWER_MS = 15_000;
const TRIES = 5;

/**
 * Connects by a kubeconfig, and makes sure that an API server answers and is not too old.
 * @throws {KsvmError} KubeconfigInvalid, Unauthorized, Forbidden, ServerUnreachable, ServerUntrusted, ServerUnsupported
 */
export async function connect(
  options: KubeconfigOptions,
  parts: Omit<ClientParts, "address" | "send"> & {
    readonly signal: AbortSignal;
    /** What lies around the `send` of all requests, such as what measures them. @default nothing */
    readonly around?: ((send: Send) => Send) | undefined;
  },
): Promise<{ readonly client: Client; readonly close: () => Promise<void> }> {
  const { around = (send) => send, clock, signal } = parts;
  // Whoever brings a `send` of its own needs no client-node, which takes most of the time to load.
  const { loadKubeconfig } = await import("./kubeconfig.ts");
  const access = loadKubeconfig(options);
  const sender = senderFor(access, clock);
  const client = new Client({ ...parts, address: access.server, send: around(sender.send) });
  try {
    await firstAnswer(client, signal);
  } catch (error) {
    await sender.close();
    throw error;
  }
  return { client, close: sender.close };
}

/** A connection that breaks at once is tried again; credentials that are refused now are wrong. */
async function firstAnswer(client: Client, signal: AbortSignal): Promise<void> {
  const start = client.clock.monotonic();
  for (let attempt = 1; ; attempt++) {
    try {
      const { gitVersion = "" } = await client.get<{ gitVersion?: string }>("/version", {
        signal,
        timeoutMs: FIRST_ANSWER_MS,
      });
      const [, major = 0, minor = 0] = (/^v?(\d+)\.(\d+)/.exec(gitVersion) ?? []).map(Number);
      if (major > 1 || (major === 1 && minor >= OLDEST_MINOR)) return;
      const found = gitVersion === "" ? "no Kubernetes version" : `Kubernetes ${gitVersion}`;
      const text = `Cannot work with ${client.address}: it runs ${found}, and 1.${OLDEST_MINOR} or newer is needed`;
      throw new KsvmError("ServerUnsupported", text);
    } catch (error) {
      const isFinal =
        !mayPass(error) || whose(error) === "rights" || (error instanceof ApiError && error.code === "ServerUntrusted");
      if (isFinal || attempt === TRIES || client.clock.monotonic() - start > FIRST_ANSWER_MS) throw error;
      await client.clock.sleep(pauseAfter(error, attempt, client.random()), signal);
    }
  }
}
