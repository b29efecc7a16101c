import type { CrdMode } from "../../api/migration.ts";
import type { RunSettings } from "../../old/migrator/assemble-run.ts";
import type { FieldsMode } from "../../old/migrator/run-context.ts";
import type { FlagsOf } from "./flag.ts";
import type { MIGRATION_FLAGS } from "./migration-flags.ts";
import type { WriteVia } from "./run-flags.ts";

/** What a command decides about its runs, beside their flags. */
interface RunWay {
  readonly crdMode: CrdMode;
  readonly leaseNamespace: string;
  /** What objects are written through. @default "resource" */
  readonly via?: WriteVia;
  /** What becomes of managedFields. @default "auto" */
  readonly managedFields?: FieldsMode;
}

/** What the flags of a command that carries out migrations say of its runs. */
export function runSettingsOf(
  flags: FlagsOf<typeof MIGRATION_FLAGS>,
  { crdMode, leaseNamespace, managedFields = "auto", via = "resource" }: RunWay,
): RunSettings {
  const { convergenceTimeoutMs, guard, maxFreezeIdleMs, pageSize, proofTimeoutMs, settleMs, shutdownDelayMs } = flags;
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
      shutdownDelayMs,
      managedFields,
      ...(via === "status" ? { subresource: via } : {}),
    },
    maxInFlight: flags.maxInFlight,
    maxQps: flags.maxQps,
    priority: flags.priority,
    maxIdleMs: flags.maxIdleMs,
    webhookWaitMs: flags.webhookWaitMs,
    apiserverEndpoints: flags.apiserverEndpoints,
    ignoredApiservers: flags.ignoreApiserver,
    strict: flags.convergence === "strict",
  };
}
