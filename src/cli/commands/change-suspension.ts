import { hostname, userInfo } from "node:os";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import type { ApiClient } from "../../kube/client.ts";
import { isNamespaceMissing, isUnserved } from "../../kube/absent.ts";
import { MIGRATIONS } from "../../kube/resources.ts";
import { Retrier } from "../../retry/retrier.ts";
import { findUnfinished, setSuspend } from "../../suspend/set-suspend.ts";
import { clearSuspendMark, readSuspendMark, setSuspendMark } from "../../suspend/suspend-mark.ts";
import { connect } from "../shared/connect.ts";
import { findFullName } from "../shared/full-names.ts";
import { EXIT, type ExitCode } from "../render/exit-codes.ts";
import type { ConnectionFlags } from "../flags/global-flags.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";

/** The flags of `ksvm suspend` and `ksvm resume`. */
export interface SuspendFlags extends ConnectionFlags {
  readonly all: boolean;
  /** Where the controller is installed. */
  readonly namespace: string;
}

interface Context {
  readonly client: ApiClient;
  readonly retrier: Retrier;
  readonly io: CliIo;
  readonly namespace: string;
}

/** A user waits for the answer. */
const PATIENCE_MS = 30_000;

/**
 * Suspends or resumes one migration or all of them.
 * @throws {KsvmError} Usage; ResourceNotFound where no unfinished migration has the name, or ksvm is not installed.
 */
export async function changeSuspension(
  io: CliIo,
  name: string | undefined,
  { suspend, flags }: { readonly suspend: boolean; readonly flags: SuspendFlags },
): Promise<ExitCode> {
  if (flags.all === (name !== undefined)) {
    const verb = suspend ? "suspend" : "resume";
    throw new KsvmError("Usage", `Cannot tell what to ${verb}: name a migration or a resource, or pass --all`);
  }
  const connection = await connect(flags, io.signal);
  try {
    const retrier = new Retrier({ clock: systemClock, random: Math.random, maxIdleMs: PATIENCE_MS });
    const context = { client: connection.client, retrier, io, namespace: flags.namespace };
    const lines = await (flags.all ? changeAll(context, suspend) : changeOne(context, name, suspend));
    io.stdout.write(lines.map((line) => `${oneLine(line)}\n`).join(""));
    return EXIT.done;
  } catch (error) {
    const { client } = connection;
    if (isNamespaceMissing(error) || (await isUnserved(client.transport, MIGRATIONS, error, { signal: io.signal }))) {
      const text = `Cannot find the migration API or namespace "${flags.namespace}": ksvm is not installed in this cluster`;
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
        ? "suspended all migrations, including later ones; to continue: ksvm resume --all"
        : "all migrations are already suspended",
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
  const lines = await changeNamed(context, name, suspend);
  const unchanged = suspend ? `"${name}" is already suspended` : `"${name}" is not suspended by itself`;
  const mark = suspend ? undefined : await retrier.run(() => readSuspendMark(client, namespace, { signal }), signal);
  return [
    ...(lines.length > 0 ? lines : [unchanged]),
    ...(mark === undefined ? [] : ["all migrations remain suspended until you run: ksvm resume --all"]),
  ];
}

/** Where nothing is called so, the name may be one of a resource's other names. */
async function changeNamed(context: Context, name: string | undefined, suspend: boolean): Promise<readonly string[]> {
  try {
    return await changeEach(context, name, suspend);
  } catch (error) {
    const isUnknown = error instanceof KsvmError && error.code === "ResourceNotFound" && name !== undefined;
    const lookup = { ...context, signal: context.io.signal };
    const resource = isUnknown ? await findFullName(lookup, name) : undefined;
    if (resource === undefined || resource === name) {
      throw error;
    }
    return await changeEach(context, resource, suspend);
  }
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
          ? `suspended migrations/${migrationName}; to continue: ksvm resume ${migrationName}`
          : `resumed migrations/${migrationName}`,
      );
    }
  }
  return lines;
}

/** The user who suspends, for those who wonder why nothing is migrated. */
function whoAmI(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    // The user of a container may have no name.
    return hostname();
  }
}
