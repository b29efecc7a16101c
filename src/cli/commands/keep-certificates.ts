import { hostname } from "node:os";
import type { EnsureResult } from "../../certs/ensure.ts";
import { DEFAULT_FOLLOW_TIMEOUT_MS } from "../../certs/rotation-plan.ts";
import { systemClock } from "../../clock.ts";
import {
  assertLifetimes,
  calledBy,
  furtherNamesOf,
  ISSUE_FLAGS,
  SECRET_FLAGS,
  WEBHOOK_URL_FLAGS,
} from "../flags/certificate-flags.ts";
import type { FlagsOf, FlagTable } from "../flags/flag.ts";
import type { GLOBAL_FLAGS } from "../flags/global-flags.ts";
import { duration } from "../flags/kinds.ts";
import { ENDPOINT_FLAGS } from "../flags/migration-flags.ts";
import { EXIT, type ExitCode } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import { connect } from "../shared/connect.ts";
import { loggerOf } from "../shared/logger-of.ts";

/** The flags that `ksvm certs ensure` and `ksvm certs rotate` share. */
export const KEEP_FLAGS = {
  ...SECRET_FLAGS,
  ...ISSUE_FLAGS,
  ...WEBHOOK_URL_FLAGS,
  timeout: duration({
    default: DEFAULT_FOLLOW_TIMEOUT_MS,
    help: "maximum time to wait for API servers and replicas, in addition to the two dwell times",
  }),
  ...ENDPOINT_FLAGS,
} satisfies FlagTable;

type KeepFlags = FlagsOf<typeof KEEP_FLAGS> & FlagsOf<typeof GLOBAL_FLAGS>;

/** How far {@link keepCertificates} goes. */
export interface KeepMode {
  /** Rotates although nothing is due. */
  readonly rotateNow: boolean;
  /** Waits for API servers and replicas, and continues to the end. */
  readonly wait: boolean;
}

/**
 * Keeps the Secret, the caBundle, and the order of a rotation.
 * @throws {KsvmError} Usage, CertificateSecretUnusable, ClocksDisagree, RotationStuck, or what a request ends in.
 */
export async function keepCertificates(io: CliIo, flags: KeepFlags, { rotateNow, wait }: KeepMode): Promise<ExitCode> {
  assertLifetimes(flags);
  const { ensureCertificates } = await import("../../certs/ensure.ts");
  const logger = loggerOf(io, flags);
  const connection = await connect(flags, io.signal);
  try {
    const result = await ensureCertificates({
      settings: {
        ...flags,
        calledBy: calledBy(flags),
        extraNames: furtherNamesOf(flags),
        apiServerDwellMs: flags.apiserverDwellMs,
      },
      client: connection.kube,
      apiServers: { endpoints: flags.apiserverEndpoints },
      clock: systemClock,
      patienceMs: flags.timeoutMs,
      logger: logger.child({ host: hostname() }),
      signal: io.signal,
      rotateNow,
      wait,
      onStep: (text) => io.stdout.write(`${oneLine(text)}\n`),
    });
    io.stdout.write(`${oneLine(describeResult(result))}\n`);
    return EXIT.done;
  } finally {
    await connection.close();
  }
}

function describeResult(result: EnsureResult): string {
  return result.state === "current"
    ? `certificates are current; the next renewal is due at ${new Date(result.nextRenewal).toISOString()}`
    : `the next run continues the rotation, not before ${new Date(result.until).toISOString()}: ${result.reason}`;
}
