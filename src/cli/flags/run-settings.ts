import { DEFAULT_SETTLE_MS } from "../../apiservers/settle.ts";
import { KsvmError } from "../../errors.ts";
import type { RunSettings } from "../../migrator/migrate.ts";
import type { FlagsOf } from "./flag.ts";
import type { MIGRATION_FLAGS } from "./migration-flags.ts";
import { durationText } from "./parsers.ts";

type RunFlags = FlagsOf<typeof MIGRATION_FLAGS> & { readonly leaseNamespace?: string };

/**
 * What the flags of a command say of its runs.
 * @throws {KsvmError} Usage for a shorter wait than is safe
 */
export function runSettingsOf(flags: RunFlags): RunSettings {
  const { leaseNamespace, maxIdleMs, maxInFlight, maxQps, settleMs, unsafeSettle } = flags;
  if (settleMs < DEFAULT_SETTLE_MS) {
    const [given, safe] = [settleMs, DEFAULT_SETTLE_MS].map(durationText);
    const why = `a request may run for 60 s, so less than ${safe} may lose data`;
    const risk = `to take that risk, as in a test, use --unsafe-settle ${given}`;
    throw new KsvmError("Usage", `Cannot use --settle ${given}: ${why}; ${risk}`);
  }
  return {
    settleMs: unsafeSettle ?? settleMs,
    maxInFlight,
    maxQps,
    maxIdleMs,
    endpoints: flags.apiserverEndpoints,
    ignored: flags.ignoreApiserver,
    ...(leaseNamespace === undefined ? {} : { leaseNamespace }),
  };
}

/** What a user has to know who shortens the wait; `undefined` where it is long enough. */
export function settleWarning({ unsafeSettle }: Pick<RunFlags, "unsafeSettle">): string | undefined {
  if (unsafeSettle === undefined || unsafeSettle >= DEFAULT_SETTLE_MS) return undefined;
  const [given, safe] = [unsafeSettle, DEFAULT_SETTLE_MS].map(durationText);
  return `--unsafe-settle ${given} is shorter than ${safe}: data is lost if a request of before is still under way then`;
}
