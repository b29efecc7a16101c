import { SYSTEM_NAMESPACE } from "../../api/migration.ts";
import { CERTIFICATE_SECRET } from "../../api/names.ts";
import { CERTIFICATE_SOURCES, CONTROLLER_DEFAULTS, MAX_CONCURRENT_MIGRATIONS } from "../../controller/settings.ts";
import { DEFAULT_INTERVAL_MS, MAX_INTERVAL_MS, MIN_INTERVAL_MS } from "../../trigger/trigger.ts";
import { DEFAULT_DRAIN_MS } from "../../webhook/webhook-configuration.ts";
import { parseGroups, parseResources } from "./address-parsers.ts";
import { ISSUE_FLAGS, RENEWAL_FLAGS, WEBHOOK_URL_FLAGS } from "./certificate-flags.ts";
import type { FlagTable } from "./flag.ts";
import { choice, duration, optional, value } from "./kinds.ts";
import { MIGRATION_FLAGS } from "./migration-flags.ts";
import { anyText, durationText, parseBoolean, wholeNumber } from "./parsers.ts";

const MAX_FINISHED_LIMIT = 1_000_000;

const anyPort = wholeNumber(0, 65_535);

const TRIGGER_FLAGS = {
  trigger: choice(["on", "off"], {
    placeholder: "state",
    default: "on",
    help: "whether to create migrations when a storage version changes",
  }),
  "trigger-interval": duration({
    default: DEFAULT_INTERVAL_MS,
    range: [MIN_INTERVAL_MS, MAX_INTERVAL_MS],
    help:
      `time between two reads of the whole of discovery, from ${durationText(MIN_INTERVAL_MS)} to ` +
      durationText(MAX_INTERVAL_MS),
  }),
  "trigger-exclude-groups": optional(parseGroups, {
    placeholder: "groups",
    help: "comma-separated list of API groups to ignore; core is the group without a name",
  }),
  "trigger-only-resources": optional(parseResources, {
    placeholder: "resources",
    help: "comma-separated list with the plural.group of the only resources to migrate; if not set, all of them",
  }),
} satisfies FlagTable;

/** Where the health checks and the metrics are. */
const HEALTH_FLAGS = {
  "health-host": value(anyText, {
    placeholder: "address",
    default: CONTROLLER_DEFAULTS.healthHost,
    help: "address that serves /livez, /readyz and /metrics",
  }),
  "health-port": value(anyPort, {
    placeholder: "port",
    default: CONTROLLER_DEFAULTS.healthPort,
    help: "port that serves /livez, /readyz and /metrics; 0 selects a free port",
  }),
} satisfies FlagTable;

const WEBHOOK_FLAGS = {
  "webhook-host": value(anyText, {
    placeholder: "address",
    default: CONTROLLER_DEFAULTS.webhookHost,
    help: "address that serves the webhook",
  }),
  "webhook-port": value(anyPort, {
    placeholder: "port",
    default: CONTROLLER_DEFAULTS.webhookPort,
    help: "port that serves the webhook; 0 selects a free port",
  }),
  ...WEBHOOK_URL_FLAGS,
  certificates: choice(CERTIFICATE_SOURCES, {
    placeholder: "source",
    default: CONTROLLER_DEFAULTS.certificates,
    help:
      "where the serving certificate is: own is the Secret that ksvm certs keeps, secret is a Secret that another " +
      "program keeps, files is a mounted key pair",
  }),
  "cert-secret": value(anyText, {
    placeholder: "name",
    default: CERTIFICATE_SECRET,
    help: "Secret that stores the certificates, with --certificates=own or secret",
  }),
  "cert-dir": value(anyText, {
    placeholder: "folder",
    default: CONTROLLER_DEFAULTS.certDir,
    help: "folder with tls.crt and tls.key, with --certificates=files",
  }),
  "shutdown-drain": duration({
    default: DEFAULT_DRAIN_MS,
    help: "time that the webhook continues to answer after the server was told to stop",
  }),
} satisfies FlagTable;

/** The flags of `ksvm controller`. */
export const CONTROLLER_FLAGS = {
  namespace: value(anyText, {
    placeholder: "namespace",
    default: SYSTEM_NAMESPACE,
    help: "namespace of the Leases, the Service and the Secret",
  }),
  "concurrent-migrations": value(wholeNumber(1, MAX_CONCURRENT_MIGRATIONS), {
    placeholder: "n",
    default: CONTROLLER_DEFAULTS.concurrentMigrations,
    help: "maximum number of resources to migrate at the same time",
  }),
  "finished-migrations-limit": value(wholeNumber(0, MAX_FINISHED_LIMIT), {
    placeholder: "n",
    default: CONTROLLER_DEFAULTS.finishedMigrationsLimit,
    help:
      "maximum number of finished migrations of a resource to keep; 0 means no limit. The trigger removes its own, " +
      "and one that failed with FreezeLifted stays",
  }),
  "manage-stored-versions": value(parseBoolean, {
    placeholder: "bool",
    default: true,
    help: "true or false; false only rewrites objects, without freezing and without pruning",
  }),
  ...HEALTH_FLAGS,
  ...TRIGGER_FLAGS,
  ...WEBHOOK_FLAGS,
  ...ISSUE_FLAGS,
  ...RENEWAL_FLAGS,
  ...MIGRATION_FLAGS,
} satisfies FlagTable;
