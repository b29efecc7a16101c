import { KsvmError } from "../errors.ts";
import { isNamespaceMissing } from "../old/kube/absent.ts";
import { isConflict } from "../old/kube/client.ts";
import { failureKindOf } from "../old/kube/failure.ts";
import { LoopPace } from "../old/retry/loop-pace.ts";
import type { EnsureOptions, EnsureResult } from "./ensure-options.ts";
import { RotationTurns } from "./rotation-turns.ts";

/** So many others at once would have to win. */
const MAX_CONFLICTS = 50;
/**
 * From one turn to the next, in milliseconds: twice as long each time. A whole rotation takes eight turns, three seconds of
 * pauses; where another client undoes each step, or a step has to wait for a moment that is past, they would never end.
 */
const MIN_TURN_MS = 25;
const MAX_TURN_MS = 5_000;
const MAX_TURNS = 40;

/**
 * Keeps the certificates: creates them where there are none, takes the steps of a rotation that are due, and keeps the
 * caBundle of the webhook configuration, where there is one. May run any number of times at once: every write has what was
 * read as precondition, and the writer that loses reads again.
 *
 * It reads and writes the Secret and the webhook configuration by name, and no custom resource.
 * @throws {KsvmError} CertificateSecretUnusable, ClocksDisagree, RotationStuck, or what a request ends in.
 */
export async function ensureCertificates(options: EnsureOptions): Promise<EnsureResult> {
  const { clock, logger, retrier, settings, signal } = options;
  const turns = new RotationTurns(options);
  const pace = new LoopPace({ clock, minMs: MIN_TURN_MS, maxMs: MAX_TURN_MS });
  for (let conflicts = 0, taken = 0; ; ) {
    await pace.turn(signal);
    try {
      const result = await retrier.run(() => turns.next(), signal);
      if (result !== undefined) {
        return result;
      }
      taken++;
      if (taken >= MAX_TURNS) {
        const text = `Cannot finish with Secret "${settings.namespace}/${settings.secret}": ${taken} steps were taken`;
        throw new KsvmError("RotationStuck", `${text}, and another one is due; another client undoes them`);
      }
    } catch (error) {
      conflicts++;
      if (!isLost(error) || conflicts > MAX_CONFLICTS) {
        throw error;
      }
      logger.debug("Another client changed the certificates; reading them again");
      await clock.sleep(20 * conflicts, signal);
    }
  }
}

/** Another client wrote the Secret or the configuration in between, or deleted it. */
function isLost(error: unknown): boolean {
  return isConflict(error) || (failureKindOf(error) === "gone" && !isNamespaceMissing(error));
}
