import { hostname } from "node:os";
import type { Logger } from "pino";
import { certificateStatus } from "../../certs/certificate-status.ts";
import { type CertificateSettings, ensureCertificates, type EnsureResult } from "../../certs/ensure.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { ApiServerFinder } from "../../migrator/api-servers.ts";
import { Retrier } from "../../migrator/retrier.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";
import { renderCertificates } from "../render/render-certificates.ts";

/** The values of `ksvm certs status -o`. */
export const CERTS_FORMATS = ["text", "json"] as const;

/** The options of `ksvm certs status`. */
export interface CertsStatusOptions extends ConnectOptions {
  readonly output: (typeof CERTS_FORMATS)[number];
  readonly namespace: string;
  readonly secret: string;
  readonly webhookConfiguration: string;
  readonly renewBefore: number;
}

/** The options of `ksvm certs ensure` and `ksvm certs rotate`. */
export interface CertsOptions extends ConnectOptions, CertificateSettings {
  readonly apiserverEndpoints?: readonly string[];
  /** Rotates though nothing is due. */
  readonly rotateNow: boolean;
  /** Waits for API servers and replicas, and goes on to the end. */
  readonly wait: boolean;
}

/**
 * `ksvm certs ensure` and `ksvm certs rotate`: keep the Secret, the caBundle, and the order of a rotation.
 * @throws {KsvmError} CertificateSecretUnusable, RotationStuck, or what a request ends in.
 */
export async function certsCommand(io: CliIo, options: CertsOptions, logger: Logger): Promise<ExitCode> {
  assertLifetimes(options);
  const connection = await connect(options, io.signal);
  const retrier = new Retrier({
    clock: systemClock,
    random: Math.random,
    maxIdleMs: options.timeoutMs,
    webhookWaitMs: options.timeoutMs,
    onRetry: (error, delayMs) => logger.warn({ err: error, delayMs }, "Trying again"),
  });
  const finder = new ApiServerFinder({
    ...connection,
    clock: systemClock,
    retrier,
    endpoints: options.apiserverEndpoints,
    strict: false,
    timeoutMs: options.timeoutMs,
    onLag: (server, reason) => logger.info({ server, reason }, "Waiting for an API server"),
  });
  try {
    const result = await ensureCertificates({
      settings: options,
      client: connection.client,
      findApiServers: (signal) => finder.find(signal),
      clock: systemClock,
      retrier,
      logger: logger.child({ host: hostname() }),
      signal: io.signal,
      rotateNow: options.rotateNow,
      wait: options.wait,
      onStep: (text) => io.stdout.write(`${text}\n`),
    });
    io.stdout.write(`${describeResult(result)}\n`);
    return EXIT.done;
  } finally {
    await finder.close();
    await connection.close();
  }
}

/**
 * `ksvm certs status`: shows the certificates and how far a rotation is; changes nothing.
 * @throws {KsvmError} NotFound where there is no Secret, CertificateSecretUnusable where it is somebody else's.
 */
export async function certsStatusCommand(io: CliIo, options: CertsStatusOptions): Promise<ExitCode> {
  const connection = await connect(options, io.signal);
  try {
    const status = await certificateStatus(connection.client, { ...options, clock: systemClock, signal: io.signal });
    io.stdout.write(
      `${options.output === "json" ? JSON.stringify(status, undefined, 2) : renderCertificates(status)}\n`,
    );
    return EXIT.done;
  } finally {
    await connection.close();
  }
}

function assertLifetimes({ caLifetimeMs, servingLifetimeMs, renewBefore }: CertsOptions): void {
  // A serving certificate never outlives its CA: what is left of the CA when it is replaced must be enough for it.
  if (servingLifetimeMs > caLifetimeMs * renewBefore) {
    throw new KsvmError(
      "Usage",
      `Cannot use these lifetimes: --serving-lifetime (${servingLifetimeMs / HOUR_MS}h) must fit into the part of ` +
        `--ca-lifetime in which the CA is renewed (${(caLifetimeMs * renewBefore) / HOUR_MS}h)`,
    );
  }
}

const HOUR_MS = 3_600_000;

function describeResult(result: EnsureResult): string {
  return result.state === "current"
    ? `certificates are current; the next renewal is due at ${new Date(result.nextRenewal).toISOString()}`
    : `the rotation goes on with the next run, not before ${new Date(result.until).toISOString()}: ${result.reason}`;
}
