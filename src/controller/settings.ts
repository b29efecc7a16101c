import type { CertificateSettings } from "../certs/ensure.ts";
import type { RunSettings } from "../migrator/migrate.ts";
import { ALL_ADDRESSES } from "../serving/listen.ts";

/**
 * Where the serving certificate comes from: `own` is the Secret that `ksvm certs` keeps, `secret` one that another program keeps, and
 * `files` a mounted pair.
 */
export const CERTIFICATE_SOURCES = ["own", "secret", "files"] as const;

/** The defaults of the flags of `ksvm controller` that concern no other part of the program. */
export const CONTROLLER_DEFAULTS = {
  certificates: "own",
  /** Where deploy/ mounts a Secret with a serving pair, for `files`. */
  certDir: "/etc/ksvm/tls",
  concurrentMigrations: 4,
  finishedMigrationsLimit: 0,
  healthHost: ALL_ADDRESSES,
  healthPort: 8080,
  webhookHost: ALL_ADDRESSES,
  webhookPort: 9443,
} as const;

/** The most resources that may be migrated at the same time. */
export const MAX_CONCURRENT_MIGRATIONS = 64;

/** How the API servers reach the webhook, and with which certificate it serves. */
export interface WebhookSettings {
  /** The address to listen on. */
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Where API servers call it, with its path. @default the Service */
  readonly url?: string | undefined;
  readonly certificates: (typeof CERTIFICATE_SOURCES)[number];
  /** The folder with tls.crt and tls.key, for `files`. */
  readonly certDir: string;
  /** Milliseconds that it goes on answering after it was told to stop. */
  readonly drainMs: number;
}

/** What serving the webhook takes. */
export interface ServingSettings {
  readonly webhook: WebhookSettings;
  /** Where the Secret is, and the names that API servers call. */
  readonly certificates: Pick<CertificateSettings, "namespace" | "secret" | "service">;
}

/** The settings of `ksvm controller`. */
export interface ControllerSettings extends ServingSettings {
  /** Where the Lease of the leader, the Service and the Secret are. */
  readonly namespace: string;
  readonly certificates: CertificateSettings;
  /** The address of /livez, /readyz and /metrics. */
  readonly health: { readonly host: string; readonly port: number };
  /** How runs are made. With `crdMode` "rewrite" there is no webhook. */
  readonly runs: RunSettings;
  readonly concurrentMigrations: number;
  /** How many finished migrations of each resource stay; 0 keeps all of them. */
  readonly finishedMigrationsLimit: number;
  /** `undefined` where migrations are created by users alone. */
  readonly trigger:
    | {
        readonly intervalMs: number;
        readonly excludedGroups: readonly string[];
        /** `undefined` where it is all of them. */
        readonly onlyResources?: readonly string[] | undefined;
      }
    | undefined;
}
