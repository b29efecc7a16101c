/** The library of ksvm, for programs that install CRDs: docs/for-operator-authors.md. */
export { KsvmError, type ErrorCode } from "../errors.ts";
export type { GuardChoice } from "../freeze/guard.ts";
export type { MigrationEvent } from "../migrator/events.ts";
export type { MigrationResult } from "../migrator/result.ts";
export type { CheckEntry, CheckVerdict } from "../plan/check-types.ts";
export type { CountedEntry } from "../plan/inventory.ts";
export { checkCrd } from "./check-crd.ts";
export type { ClusterOptions } from "./cluster.ts";
export { migrateCrd, type MigrateOptions } from "./migrate-crd.ts";
export { planCrd } from "./plan-crd.ts";
