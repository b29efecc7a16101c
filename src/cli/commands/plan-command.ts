import { planCluster, planNamed } from "../../migrator/inventory.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";
import { type PlanFormat, renderPlan } from "../render/render-plan.ts";

/** The options of `ksvm plan`. */
export interface PlanOptions extends ConnectOptions {
  readonly output: PlanFormat;
}

/** `ksvm plan`: shows what migrations would do, changes nothing. */
export async function planCommand(io: CliIo, names: readonly string[], options: PlanOptions): Promise<ExitCode> {
  const { signal } = io;
  const connection = await connect(options, signal);
  try {
    const warn = (groupVersion: string, reason: string): void => {
      io.stderr.write(`warning: ${groupVersion} is left out: its API server says: ${reason}\n`);
    };
    const { client } = connection;
    const entries =
      names.length === 0 ? await planCluster(client, warn, { signal }) : await planNamed(client, names, { signal });
    io.stdout.write(`${renderPlan(entries, options.output)}\n`);
    return EXIT.done;
  } finally {
    await connection.close();
  }
}
