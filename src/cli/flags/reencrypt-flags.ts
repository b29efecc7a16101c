import { configDigestOf } from "../../api/reencryption.ts";
import { DEFAULT_PROOF_TIMEOUT_MS } from "../../old/freeze/freeze-proof.ts";
import { DEFAULT_GUARD } from "../../old/freeze/guard.ts";
import type { RunSettings } from "../../old/migrator/assemble-run.ts";
import { DEFAULT_MAX_FREEZE_IDLE_MS } from "../../old/migrator/run-until-done.ts";
import { DEFAULT_SETTLE_MS } from "../../old/apiservers/settle.ts";
import { type FlagsOf, type FlagTable, InvalidValue } from "./flag.ts";
import { duration, optional, repeated, toggle } from "./kinds.ts";
import { ENDPOINT_FLAGS, MIGRATION_FLAGS } from "./migration-flags.ts";
import { anyText } from "./parsers.ts";
import { LEASE_NAMESPACE_FLAG, RUN_OUTPUT_FLAG } from "./run-flags.ts";
import { runSettingsOf } from "./run-settings.ts";

/** @returns as API servers show it */
export function parseDigest(text: string): string {
  const digest = configDigestOf(text);
  if (digest === undefined) {
    throw new InvalidValue("a SHA-256 digest of 64 hexadecimal digits");
  }
  return digest;
}

/**
 * The default of `--convergence-timeout`, in milliseconds: an API server looks at its configuration once a minute, and a KMS v2
 * plugin is asked for its key once a minute.
 */
const DEFAULT_ROLLOUT_MS = 600_000;

/** The flags of `ksvm reencrypt`. */
export const REENCRYPT_FLAGS = {
  all: toggle({ help: "rewrite the objects of every served resource, built-in and custom" }),
  "assume-config-rolled-out": toggle({
    help:
      "do not ask the API servers which encryption configuration they use. Data is lost if one of them still uses the old " +
      "one: objects keep the old key, ksvm reports success, and nothing can read them once that key is removed",
  }),
  "expect-config": optional(parseDigest, {
    placeholder: "sha256",
    help:
      "digest of the new EncryptionConfiguration, as sha256sum prints it; ksvm waits until every API server uses that one. " +
      "If not set, any configuration that all of them use counts, also an old one that none of them has replaced yet",
  }),
  ...RUN_OUTPUT_FLAG,
  settle: duration({
    default: DEFAULT_SETTLE_MS,
    help:
      "minimum time since ksvm first saw all API servers use the same configuration; must be longer than the " +
      "--request-timeout of the API servers",
  }),
  "shutdown-delay": MIGRATION_FLAGS["shutdown-delay"],
  "page-size": MIGRATION_FLAGS["page-size"],
  "max-in-flight": MIGRATION_FLAGS["max-in-flight"],
  priority: MIGRATION_FLAGS.priority,
  "max-qps": MIGRATION_FLAGS["max-qps"],
  "convergence-timeout": duration({
    default: DEFAULT_ROLLOUT_MS,
    help: "maximum time for the API servers to use the same encryption configuration and key",
  }),
  convergence: MIGRATION_FLAGS.convergence,
  ...ENDPOINT_FLAGS,
  "ignore-apiserver": repeated(anyText, {
    placeholder: "identity",
    help:
      "name of an identity Lease in kube-system whose API server is gone; can be repeated. Data is lost if that API " +
      "server still runs: it may write with the old key",
  }),
  "max-idle": MIGRATION_FLAGS["max-idle"],
  "webhook-wait": MIGRATION_FLAGS["webhook-wait"],
  ...LEASE_NAMESPACE_FLAG,
} satisfies FlagTable;

/** What the flags say of the runs: no CRD is frozen, so nothing about a freeze can be chosen. */
export function reencryptSettingsOf(
  flags: Omit<FlagsOf<typeof REENCRYPT_FLAGS>, "all" | "assumeConfigRolledOut" | "expectConfig">,
): RunSettings {
  const freeze = {
    guard: DEFAULT_GUARD,
    proofTimeoutMs: DEFAULT_PROOF_TIMEOUT_MS,
    maxFreezeIdleMs: DEFAULT_MAX_FREEZE_IDLE_MS,
  };
  return runSettingsOf({ ...flags, ...freeze }, { crdMode: "rewrite", leaseNamespace: flags.leaseNamespace });
}
