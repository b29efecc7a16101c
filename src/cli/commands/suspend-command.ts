import { hostname, userInfo } from "node:os";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../../kube/client.ts";
import { isNamespaceMissing, isUnserved } from "../../kube/absent.ts";
import { MIGRATIONS } from "../../kube/resources.ts";
import { Retrier } from "../../migrator/retrier.ts";
import { findUnfinished, setSuspend } from "../../suspend/set-suspend.ts";
import { clearSuspendMark, readSuspendMark, setSuspendMark } from "../../suspend/suspend-mark.ts";
import { type ConnectOptions, connect } from "../connect.ts";
import { EXIT, type ExitCode } from "../exit-codes.ts";
import type { CliIo } from "../io.ts";

/** The options of `ksvm suspend` and `ksvm resume`. */
export interface SuspendOptions extends ConnectOptions {
  readonly all?: boolean;
  /** Where the controller is installed. */
  readonly namespace: string;
}

interface Context {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly io: CliIo;
  readonly namespace: string;
}

/** A user sits and waits. */
const PATIENCE_MS = 30_000;

/**
 * `ksvm suspend` and `ksvm resume`: stops one migration or all, or has them go on.
 * @throws {KsvmError} Usage; ResourceNotFound where no unfinished migration has the name, or ksvm is not installed.
 */
export async function suspendCommand(
  io: CliIo,
  name: string | undefined,
  { suspend, options }: { readonly suspend: boolean; readonly options: SuspendOptions },
): Promise<ExitCode> {
  const isAll = options.all === true;
  if (isAll === (name !== undefined)) {
    const verb = suspend ? "suspend" : "resume";
    throw new KsvmError("Usage", `Cannot tell what to ${verb}: name a migration or a resource, or pass --all`);
  }
  const connection = await connect(options, io.signal);
  try {
    const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: PATIENCE_MS });
    const context = { client: connection.client, retrier, io, namespace: options.namespace };
    const lines = await (isAll ? changeAll(context, suspend) : changeOne(context, name, suspend));
    io.stdout.write(lines.map((line) => `${line}\n`).join(""));
    return EXIT.done;
  } catch (error) {
    const { client } = connection;
    if (isNamespaceMissing(error) || (await isUnserved(client.transport, MIGRATIONS, error, { signal: io.signal }))) {
      const text = `Cannot find the migration API or namespace "${options.namespace}": ksvm is not installed in this cluster`;
      throw new KsvmError("ResourceNotFound", text, { cause: error });
    }
    throw error;
  } finally {
    await connection.close();
  }
}

async function changeAll(context: Context, suspend: boolean): Promise<readonly string[]> {
  const { client, io, namespace, retrier } = context;
  const { signal } = io;
  if (suspend) {
    const mark = { since: new Date().toISOString(), by: whoAmI() };
    const isNew = await retrier.run(() => setSuspendMark(client, { namespace, mark }, { signal }), signal);
    return [
      isNew
        ? "suspended all migrations, those that come later too; go on with: ksvm resume --all"
        : "all migrations are suspended already",
    ];
  }
  const wasMarked = await retrier.run(() => clearSuspendMark(client, namespace, { signal }), signal);
  const lines = await changeEach(context, undefined, false);
  return [
    ...(wasMarked ? ["resumed all migrations"] : []),
    ...lines,
    ...(wasMarked || lines.length > 0 ? [] : [NOTHING]),
  ];
}

const NOTHING = "nothing was suspended";

async function changeOne(context: Context, name: string | undefined, suspend: boolean): Promise<readonly string[]> {
  const { client, io, namespace, retrier } = context;
  const { signal } = io;
  const lines = await changeEach(context, name, suspend);
  const unchanged = suspend ? `"${name}" is suspended already` : `"${name}" is not suspended by itself`;
  const mark = suspend ? undefined : await retrier.run(() => readSuspendMark(client, namespace, { signal }), signal);
  return [
    ...(lines.length > 0 ? lines : [unchanged]),
    ...(mark === undefined ? [] : ["all migrations stay suspended until: ksvm resume --all"]),
  ];
}

async function changeEach(context: Context, name: string | undefined, suspend: boolean): Promise<readonly string[]> {
  const { client, io, retrier } = context;
  const { signal } = io;
  const lines: string[] = [];
  for (const migration of await retrier.run(() => findUnfinished(client, name, { signal }), signal)) {
    if (await retrier.run(() => setSuspend(client, { migration, suspend }, { signal }), signal)) {
      const { name: migrationName } = migration.metadata;
      lines.push(
        suspend
          ? `suspended migrations/${migrationName}; go on with: ksvm resume ${migrationName}`
          : `resumed migrations/${migrationName}`,
      );
    }
  }
  return lines;
}

/** Who set the mark, for whoever finds it. */
function whoAmI(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    // The user of a container may have no name.
    return hostname();
  }
}
