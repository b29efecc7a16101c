import type { CliCommand } from "../shared/command.ts";
import { CERTS_ENSURE_COMMAND } from "./certs-ensure-command.ts";
import { CERTS_ROTATE_COMMAND } from "./certs-rotate-command.ts";
import { CERTS_STATUS_COMMAND } from "./certs-status-command.ts";
import { CHECK_COMMAND } from "./check-command.ts";
import { completionCommand } from "./completion-command.ts";
import { CONTROLLER_COMMAND } from "./controller-command.ts";
import { DOCTOR_COMMAND } from "./doctor-command.ts";
import { INIT_COMMAND } from "./init-command.ts";
import { MIGRATE_COMMAND } from "./migrate-command.ts";
import { PLAN_COMMAND } from "./plan-command.ts";
import { RBAC_COMMAND } from "./rbac-command.ts";
import { REENCRYPT_COMMAND } from "./reencrypt-command.ts";
import { STATUS_COMMAND } from "./status-command.ts";
import { UNFREEZE_COMMAND } from "./unfreeze-command.ts";
import { VERSION_COMMAND } from "./version-command.ts";

/** Every command, in the order of `--help` and docs/cli.md. */
export const COMMANDS: readonly CliCommand[] = [
  PLAN_COMMAND,
  CHECK_COMMAND,
  MIGRATE_COMMAND,
  REENCRYPT_COMMAND,
  INIT_COMMAND,
  STATUS_COMMAND,
  UNFREEZE_COMMAND,
  DOCTOR_COMMAND,
  RBAC_COMMAND,
  CERTS_ENSURE_COMMAND,
  CERTS_ROTATE_COMMAND,
  CERTS_STATUS_COMMAND,
  CONTROLLER_COMMAND,
  completionCommand(() => COMMANDS),
  VERSION_COMMAND,
];
