/** The stable codes of {@link KsvmError}, documented in docs/errors.md. A retired code is never used again. */
export const ERROR_CODES = [
  "Usage",
  "KubeconfigInvalid",
  "ManifestInvalid",
  "ServerUnreachable",
  "ServerUntrusted",
  "ServerUnsupported",
  "Unauthorized",
  "Forbidden",
  "NotFound",
  "Conflict",
  "ApiRequestFailed",
  "RetryBudgetExceeded",
  "WatchFailed",
  "ResourceNotFound",
  "ResourceAmbiguous",
  "ResourceNotMigratable",
  "AlreadyMigrating",
  "ForeignFreeze",
  "OtherMigratorActive",
  "FreezeNotProven",
  "NotConverged",
  "ApiServerMissing",
  "EncryptionUnknown",
  "AggregatedApi",
  "AnnotationInvalid",
  "ClockJumps",
  "FreezeLifted",
  "StorageVersionChanged",
  "ConversionChanged",
  "CrdReplaced",
  "VersionNotServed",
  "OwnershipLost",
  "PruneFailed",
  "CleanupFailed",
  "CertificateSecretUnusable",
  "RotationStuck",
  "ClocksDisagree",
  "OutputFailed",
  "ListenFailed",
  "RepairStopped",
  "NodeUnsupported",
  "Interrupted",
  "Internal",
] as const;

/** A stable code, one of {@link ERROR_CODES}. */
export type ErrorCode = (typeof ERROR_CODES)[number];

/** The base of every error that this program raises on purpose. Its message is one line that a user can act on. */
export class KsvmError extends Error {
  override readonly name: string = "KsvmError";
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
  }
}

/** The text of anything that was thrown, on one line. */
export function messageOf(thrown: unknown): string {
  const text = thrown instanceof Error ? thrown.message : String(thrown);
  return text.replaceAll(/\s*\n\s*/g, " ");
}
