import type { RunSettings } from "../../../src/migrator/assemble-run.ts";
import type { ProgramPlan } from "../plan.ts";
import type { World } from "../world/world.ts";
import { CertsProgram } from "./certs-program.ts";
import { ControllerProgram, controllerSettings } from "./controller-program.ts";
import { InitProgram } from "./init-program.ts";
import { MigrateProgram } from "./migrate-program.ts";
import type { Program } from "./started-program.ts";
import { WebhookProgram } from "./webhook-program.ts";

/** Starts what a plan names. `name` is that of its process, and of its user at the API servers: it begins with `ksvm`. */
export function startProgram(
  world: World,
  { run, kind, force, trigger, namesServers, servesWebhook = false, unmanaged = false }: ProgramPlan,
  name: string,
): Program | undefined {
  const kindPlan = world.plan.kinds[kind];
  if (kindPlan === undefined) return undefined;
  switch (run) {
    case "migrate":
      return new MigrateProgram(world, { name, kind: kindPlan, force, namesServers });
    case "reencrypt":
      return new MigrateProgram(world, {
        name,
        kind: kindPlan,
        force: true,
        reencrypts: true,
      });
    case "controller":
      return new ControllerProgram(world, {
        name,
        settings: controllerSettings(
          unmanaged ? rewriting(world.settings) : world.settings,
          trigger ?? "on",
          world.plan.kinds,
        ),
        servesWebhook,
      });
    case "init":
      return new InitProgram(world, name);
    case "webhook":
      return new WebhookProgram(world, name);
    case "ensureCertificates":
    case "rotateCertificates":
      return new CertsProgram(world, { name, rotates: run === "rotateCertificates" });
  }
}

/** As of `--manage-stored-versions=false`. */
function rewriting({ options, ...settings }: RunSettings): RunSettings {
  return { ...settings, options: { ...options, crdMode: "rewrite" } };
}
