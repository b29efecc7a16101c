import { Counter, Gauge, Histogram, Registry } from "prom-client";

/** How the webhook answered a review. */
export type WebhookDecision = "allowed" | "denied" | "invalid";

/** How a migration ended. */
export type MigrationEnd = "Succeeded" | "Failed";

/** What happened to an object. */
export type ObjectOutcome = "migrated" | "skipped" | "failed";

/**
 * Every metric of the server, by the rules of https://prometheus.io/docs/practices/naming/. docs/metrics.md lists them,
 * and a test keeps both equal.
 */
export class Metrics {
  readonly registry = new Registry();

  readonly objects = new Counter({
    name: "ksvm_objects_total",
    help: "Objects that a migration was done with: migrated, skipped, failed",
    labelNames: ["resource", "outcome"] as const,
    registers: [this.registry],
  });

  readonly completed = new Counter({
    name: "ksvm_migrations_completed_total",
    help: "Migrations that this replica carried out to their end, by how they ended: Succeeded or Failed",
    labelNames: ["resource", "result"] as const,
    registers: [this.registry],
  });

  readonly migrations = new Gauge({
    name: "ksvm_migrations",
    help: "StorageVersionMigration objects by state: Pending, Running, Waiting, Suspended, Succeeded, Failed",
    labelNames: ["state"] as const,
    registers: [this.registry],
  });

  readonly waiting = new Gauge({
    name: "ksvm_migrations_waiting",
    help: "Migrations that wait, or run and get no further, by the reason in their condition; no sample where none does",
    labelNames: ["reason"] as const,
    registers: [this.registry],
  });

  readonly remaining = new Gauge({
    name: "ksvm_objects_remaining",
    help: "Objects that a running migration has still to look at, as the API server estimates them",
    labelNames: ["resource"] as const,
    registers: [this.registry],
  });

  readonly requestDuration = new Histogram({
    name: "ksvm_request_duration_seconds",
    help: "Time from a request to the API server to its answer's headers; code is 0 where none came",
    labelNames: ["method", "code"] as const,
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers: [this.registry],
  });

  readonly pruned = new Counter({
    name: "ksvm_stored_versions_pruned_total",
    help: "Versions that were taken out of status.storedVersions",
    labelNames: ["resource"] as const,
    registers: [this.registry],
  });

  readonly freezeStarted = new Gauge({
    name: "ksvm_freeze_start_timestamp_seconds",
    help: "Since when a CRD is frozen by this server; no sample where none is",
    labelNames: ["resource"] as const,
    registers: [this.registry],
  });

  readonly webhookReviews = new Counter({
    name: "ksvm_webhook_reviews_total",
    help: "Admission reviews that were answered: allowed, denied, or invalid",
    labelNames: ["decision"] as const,
    registers: [this.registry],
  });

  readonly webhookDuration = new Histogram({
    name: "ksvm_webhook_review_duration_seconds",
    help: "Time from the first byte of an admission review to its answer",
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers: [this.registry],
  });

  readonly certificateExpiry = new Gauge({
    name: "ksvm_certificate_expiry_timestamp_seconds",
    help: "When the serving certificate in use expires",
    registers: [this.registry],
  });

  readonly certificateReloads = new Counter({
    name: "ksvm_certificate_reloads_total",
    help: "Serving certificates that were taken into use (loaded) or turned down (rejected)",
    labelNames: ["result"] as const,
    registers: [this.registry],
  });

  readonly leader = new Gauge({
    name: "ksvm_leader",
    help: "1 where this replica leads and migrates, else 0",
    registers: [this.registry],
  });

  readonly triggerLastLook = new Gauge({
    name: "ksvm_trigger_last_look_timestamp_seconds",
    help: "When the trigger last read the whole of discovery, or began; 0 where this replica runs none",
    registers: [this.registry],
  });

  readonly triggerUnknown = new Gauge({
    name: "ksvm_trigger_unknown_states",
    help: "StorageStates that say Unknown: objects may be stored in versions that were not recorded, or API servers disagree",
    registers: [this.registry],
  });

  readonly triggerDisagreements = new Gauge({
    name: "ksvm_trigger_disagreements",
    help: "Built-in resources that the API servers do not store alike",
    registers: [this.registry],
  });

  readonly triggerWaiting = new Gauge({
    name: "ksvm_trigger_waiting",
    help: "Resources that need a migration and have none under way, as after one that failed",
    registers: [this.registry],
  });

  readonly triggerRetries = new Counter({
    name: "ksvm_trigger_retries_total",
    help: "What the trigger did once more: a look at discovery or at a resource that failed (discovery, look), a migration in vain (migration)",
    labelNames: ["what"] as const,
    registers: [this.registry],
  });

  readonly storedVersionsStale = new Gauge({
    name: "ksvm_stored_versions_stale",
    help: "Versions in status.storedVersions of a CRD beside its storage version, as the trigger sees them; no sample where there are none",
    labelNames: ["resource"] as const,
    registers: [this.registry],
  });

  constructor() {
    // A counter that begins with what it counts shows no increase, and there is an alert for each of these.
    for (const decision of ["allowed", "denied", "invalid"] as const) this.webhookReviews.inc({ decision }, 0);
    for (const result of ["loaded", "rejected"]) this.certificateReloads.inc({ result }, 0);
  }
}
