import { type Command, InvalidArgumentError, Option } from "commander";
import { SYSTEM_NAMESPACE } from "../api/migration.ts";
import { WEBHOOK_NAME } from "../api/names.ts";
import type { ReplicaAddress } from "../certs/replicas.ts";
import { createLogger, type LoggerOptions } from "../observability/logger.ts";
import {
  CERTS_FORMATS,
  certsCommand,
  type CertsOptions,
  certsStatusCommand,
  type CertsStatusOptions,
} from "./commands/certs-command.ts";
import { type CommandParts, durationOption, withGlobalOptions } from "./common-options.ts";
import { parseEndpoints } from "./parse-options.ts";

type Parsed = Readonly<Record<string, unknown>> & {
  readonly logLevel: LoggerOptions["level"];
  readonly logFormat: LoggerOptions["format"];
};

const DAY_MS = 86_400_000;

/** Adds `ksvm certs` with its three commands. */
export function addCerts(program: Command, parts: CommandParts): void {
  const certs = program
    .command("certs")
    .description("Keep the certificates of the webhook in a Secret.")
    .helpCommand(false);
  const run = async (parsed: Parsed, changes: Partial<CertsOptions>): Promise<void> => {
    const { logLevel: level, logFormat: format } = parsed;
    const logger = createLogger({ level, format, destination: parts.io.stderr });
    parts.onExit(await certsCommand(parts.io, { ...certsOptionsOf(parsed), ...changes }, logger));
  };
  addKeepOptions(certs.command("ensure"))
    .description("Create the certificates where there are none, renew what is due, take the next steps of a rotation.")
    .action((parsed: Parsed) => run(parsed, { rotateNow: false, wait: false }));
  addKeepOptions(certs.command("rotate"))
    .description("Take every step of a rotation that is due, to the end, and wait where that needs time.")
    .option("--now", "rotate the CA and the serving certificate though nothing is due")
    .action((parsed: Parsed) => run(parsed, { rotateNow: parsed["now"] === true, wait: true }));
  addWhereOptions(certs.command("status"))
    .description("Show the certificates and how far a rotation is; change nothing.")
    .addOption(new Option("-o, --output <format>", "how to print").choices(CERTS_FORMATS).default("text"))
    .action(async (options: CertsStatusOptions) => {
      parts.onExit(await certsStatusCommand(parts.io, options));
    });
}

function addWhereOptions(command: Command): Command {
  return withGlobalOptions(command)
    .option("--namespace <namespace>", "where the Secret and the Service are", SYSTEM_NAMESPACE)
    .option("--secret <name>", "the Secret that holds the certificates", DEFAULT_SECRET)
    .option("--webhook-configuration <name>", "the configuration whose caBundle is kept", WEBHOOK_NAME)
    .addOption(renewBeforeOption());
}

function addKeepOptions(command: Command): Command {
  return addIssueOptions(addWhereOptions(command))
    .addOption(
      durationOption("--timeout <duration>", "how long API servers and replicas are waited for after that", 300_000),
    )
    .option(
      "--apiserver-endpoints <urls>",
      "the URL of each API server, with commas between; else they are found",
      parseEndpoints,
    );
}

/** Name of the Secret that holds the certificates. */
export const DEFAULT_SECRET = "ksvm-webhook-tls";

/** When certificates are renewed. */
export function renewBeforeOption(): Option {
  return new Option("--renew-before <share>", "the share of a lifetime, at its end, in which a certificate is renewed")
    .argParser(parseShare)
    .default(1 / 3, "1/3");
}

/** The options of everybody who issues certificates: the controller must agree on them with the certificate job. */
export function addIssueOptions(command: Command): Command {
  return command
    .option("--service <name>", "the Service that API servers call", "ksvm-webhook")
    .option("--cluster-domain <domain>", "the DNS domain of the cluster", "cluster.local")
    .option(
      "--extra-names <names>",
      "further DNS names and IP addresses to be valid for, with commas between",
      parseNames,
    )
    .addOption(
      durationOption("--ca-lifetime <duration>", "how long a new CA is valid", 365 * DAY_MS).default(
        365 * DAY_MS,
        "8760h",
      ),
    )
    .addOption(
      durationOption(
        "--serving-lifetime <duration>",
        "how long a new serving certificate is valid",
        90 * DAY_MS,
      ).default(90 * DAY_MS, "2160h"),
    )
    .addOption(
      durationOption(
        "--apiserver-dwell <duration>",
        "how long every API server must have shown a new CA before it is used",
        30_000,
      ),
    )
    .addOption(
      durationOption(
        "--replica-dwell <duration>",
        "how long replicas have to take a new certificate into use before the old CA leaves",
        90_000,
      ),
    )
    .option(
      "--replica-endpoints <addresses>",
      "HOST:PORT of each replica, with commas between; else they are found by the Service's EndpointSlices",
      parseAddresses,
    );
}

/** commander names an option after its flag; durations get their unit here. */
function certsOptionsOf(parsed: Parsed): CertsOptions {
  const { caLifetime, servingLifetime, apiserverDwell, replicaDwell, timeout, ...rest } = parsed;
  const durations = {
    caLifetimeMs: caLifetime,
    servingLifetimeMs: servingLifetime,
    apiServerDwellMs: apiserverDwell,
    replicaDwellMs: replicaDwell,
    timeoutMs: timeout,
  };
  return { ...rest, ...durations } as unknown as CertsOptions;
}

/** Reads a share such as `0.3` or `1/3`. @throws {InvalidArgumentError} where it does not lie between 0 and 1. */
export function parseShare(text: string): number {
  const [, dividend, divisor = "1"] = /^(\d+(?:\.\d+)?)(?:\/(\d+))?$/.exec(text) ?? [];
  const share = Number(dividend) / Number(divisor);
  if (!(share > 0 && share < 1)) {
    throw new InvalidArgumentError('Expected a share between 0 and 1, such as "0.3" or "1/3".');
  }
  return share;
}

/** Reads addresses such as `10.0.0.1:8443,[fd00::1]:8443`. @throws {InvalidArgumentError} */
export function parseAddresses(text: string): readonly ReplicaAddress[] {
  return text.split(",").map((part) => {
    const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]/\s]+)):(\d{1,5})$/.exec(part.trim()) ?? [];
    const host = bracketed ?? plain;
    if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
      throw new InvalidArgumentError('Expected HOST:PORT with commas between, such as "10.0.0.1:8443,[fd00::1]:8443".');
    }
    return { host, port: Number(port) };
  });
}

/** Reads names with commas between. @throws {InvalidArgumentError} where one is empty or holds a blank. */
export function parseNames(text: string): readonly string[] {
  return text.split(",").map((part) => {
    const name = part.trim();
    if (!/^[\w*.:-]+$/.test(name)) {
      throw new InvalidArgumentError(
        'Expected DNS names or IP addresses with commas between, such as "webhook.example.com".',
      );
    }
    return name;
  });
}
