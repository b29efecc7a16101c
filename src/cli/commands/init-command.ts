import { systemClock } from "../../clock.ts";
import { initialize, type InitOptions, type InitResult } from "../../initializer/initialize.ts";
import { Retrier } from "../../migrator/retrier.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";

/** The values of `ksvm init -o`. */
export const INIT_FORMATS = ["text", "json"] as const;

/** The options of `ksvm init`. */
export interface InitCommandOptions extends ConnectOptions, InitOptions {
  readonly output: (typeof INIT_FORMATS)[number];
}

/**
 * `ksvm init`: the one-time job of seed 000.
 * @throws {KsvmError} OtherMigratorActive, before anything was changed.
 */
export async function initCommand(io: CliIo, options: InitCommandOptions): Promise<ExitCode> {
  const { signal, stdout } = io;
  const connection = await connect(options, signal);
  try {
    const retrier = new Retrier({ clock: systemClock, random: Math.random });
    const context = { client: connection.client, retrier, clock: systemClock, signal };
    const result = await initialize(context, options);
    stdout.write(
      options.output === "json" ? `${JSON.stringify(result, undefined, 2)}\n` : `${describeInit(result).join("\n")}\n`,
    );
    // Else a Job would tell of success, and nobody would run it again.
    return result.unread.length === 0 ? EXIT.done : EXIT.incomplete;
  } finally {
    await connection.close();
  }
}

/** The result in plain words. Subresources are only counted: there are more of them than of everything else. */
export function describeInit(done: InitResult): readonly string[] {
  const { replaced, crds, deleted, migrations, skipped, unread } = done;
  return [
    ...replaced.map(({ namespace, name }) => `removed Deployment "${namespace}/${name}"`),
    ...crds.map(({ name, result }) => `${result} CustomResourceDefinition "${name}"`),
    ...(deleted === 0 ? [] : [`deleted ${deleted} migrations of an earlier init`]),
    ...skipped
      .filter((entry) => !isSubresource(entry))
      .map(({ resource, reason }) => `left out "${resource}": ${reason}`),
    `left out ${skipped.filter(isSubresource).length} subresources`,
    ...migrations.map(({ name, resource, version }) => `created migration "${name}" of "${resource}" (${version})`),
    `created ${migrations.length} migrations; see how they get on: ksvm status -w`,
    ...unread.map(({ resource, reason }) => `not done: "${resource}": ${reason}; run ksvm init again`),
  ];
}

function isSubresource({ resource }: InitResult["skipped"][number]): boolean {
  return resource.includes("/");
}
