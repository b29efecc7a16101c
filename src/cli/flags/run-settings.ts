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
  if (isUnsafe(flags) && !unsafeSettle) {
    throw new KsvmError(
      "Usage",
      `Cannot use --settle ${durationText(settleMs)}: a request may run for 60 s, so less than ` +
        `${durationText(DEFAULT_SETTLE_MS)} may lose data; to take that risk, as in a test, add --unsafe-settle`,
    );
  }
  return {
    settleMs,
    maxInFlight,
    maxQps,
    maxIdleMs,
    endpoints: flags.apiserverEndpoints,
    ignored: flags.ignoreApiserver,
    ...(leaseNamespace === undefined ? {} : { leaseNamespace }),
  };
}

/** What a user has to know who shortens the wait; `undefined` where it is long enough. */
export function settleWarning(flags: Pick<RunFlags, "settleMs">): string | undefined {
  if (!isUnsafe(flags)) return undefined;
  const [given, safe] = [flags.settleMs, DEFAULT_SETTLE_MS].map(durationText);
  return `--settle ${given} is shorter than ${safe}: data is lost if a request of before is still under way then`;
}

function isUnsafe({ settleMs }: Pick<RunFlags, "settleMs">): boolean {
  return settleMs < DEFAULT_SETTLE_MS;
}
