import type { CrdMode } from "../../api/migration.ts";
import type { RunSettings } from "../../migrator/assemble-run.ts";
import type { FlagsOf } from "./flag.ts";
import type { MIGRATION_FLAGS } from "./migration-flags.ts";

/** What the flags of a command that carries out migrations say of its runs. */
export function runSettingsOf(
  flags: FlagsOf<typeof MIGRATION_FLAGS>,
  { crdMode, leaseNamespace }: { readonly crdMode: CrdMode; readonly leaseNamespace: string },
): RunSettings {
  const { convergenceTimeoutMs, guard, maxFreezeIdleMs, pageSize, proofTimeoutMs, settleMs } = flags;
  return {
    options: {
      convergenceTimeoutMs,
      crdMode,
      guard,
      leaseNamespace,
      maxFreezeIdleMs,
      pageSize,
      proofTimeoutMs,
      settleMs,
    },
    maxInFlight: flags.maxInFlight,
    maxQps: flags.maxQps,
    maxIdleMs: flags.maxIdleMs,
    webhookWaitMs: flags.webhookWaitMs,
    apiserverEndpoints: flags.apiserverEndpoints,
    ignoredApiservers: flags.ignoreApiserver,
    strict: flags.convergence === "strict",
  };
}
