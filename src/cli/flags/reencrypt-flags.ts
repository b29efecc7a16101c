import { configDigestOf } from "../../api/reencryption.ts";
import { type FlagTable, InvalidValue } from "./flag.ts";
import { optional, toggle } from "./kinds.ts";
import { MIGRATION_FLAGS } from "./migration-flags.ts";
import { LEASE_NAMESPACE_FLAG, RUN_OUTPUT_FLAG } from "./run-flags.ts";

/** @returns as API servers show it */
export function parseDigest(text: string): string {
  const digest = configDigestOf(text);
  if (digest === undefined) {
    throw new InvalidValue("a SHA-256 digest of 64 hexadecimal digits");
  }
  return digest;
}

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
  ...MIGRATION_FLAGS,
  settle: {
    ...MIGRATION_FLAGS.settle,
    help:
      "time to wait for writes with an earlier configuration, once every API server uses the same one; must be half a " +
      "minute longer than the --request-timeout of the API servers",
  },
  "unsafe-settle": {
    ...MIGRATION_FLAGS["unsafe-settle"],
    help:
      "wait for less than --settle may say. Data is lost if a request of before is still under way after it: the object keeps the old " +
      "key, and nothing can read it once that key is removed",
  },
  "ignore-apiserver": {
    ...MIGRATION_FLAGS["ignore-apiserver"],
    help:
      "name of an identity Lease in kube-system whose API server is gone; can be repeated. Data is lost if that API " +
      "server still runs: it may write with the old key",
  },
  ...LEASE_NAMESPACE_FLAG,
} satisfies FlagTable;
