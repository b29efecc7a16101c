import { isFinal } from "../../api/migration.ts";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { isForbidden } from "../../kube/failure.ts";
import { unlessForbidden } from "../../kube/unless-forbidden.ts";
import { type Migrations, migrationsOf, readMigrations } from "../../plan/cluster-status.ts";
import {
  crdVerdictOf,
  isForKeys,
  migrationsVerdictOf,
  newestOf,
  successVerdictOf,
  type WaitVerdict,
} from "../../plan/wait-verdict.ts";
import { findCrd } from "../../resources/read-crd.ts";
import { DENIAL_PATIENCE_MS } from "../../retry/patience.ts";
import { Retrier } from "../../retry/retrier.ts";
import { duration, toggle } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { durationText } from "../flags/parsers.ts";
import { EXIT, type ExitCode } from "../render/exit-codes.ts";
import type { CliIo } from "../render/io.ts";
import { oneLine } from "../render/printable.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { findFullName, type NameLookup } from "../shared/full-names.ts";
import { isControllerRunning } from "./find-controller.ts";

const POLL_MS = 2_000;
const DEFAULT_TIMEOUT_MS = 1_800_000;

const EXIT_CODES = { failed: EXIT.failed, incomplete: EXIT.incomplete } as const;

/** What is waited for, and how far it is. */
interface Awaited {
  readonly name: string;
  readonly look: (status: Migrations) => Promise<WaitVerdict>;
}

/** `ksvm wait`: waits until migrations have ended, and ends with the first that failed. */
export const WAIT_COMMAND = defineCommand({
  path: "wait",
  description: "Wait until resources are migrated; end at once if a migration failed.",
  examples: ["ksvm wait widgets.example.com", "ksvm wait --timeout 10m", "ksvm wait --controller --timeout 2m"],
  operands: anyNames("a resource or a migration; every migration under way if no name is given"),
  flags: {
    controller: toggle({ help: "wait until a controller leads, and not for migrations" }),
    timeout: duration({ default: DEFAULT_TIMEOUT_MS, help: "maximum time to wait; 0 means no limit" }),
  },
  async run(io, { controller, timeoutMs, ...flags }, names) {
    if (controller && names.length > 0) {
      throw new KsvmError(
        "Usage",
        "Cannot wait for a controller and for resources at once: omit --controller or the names",
      );
    }
    const limit = timeoutMs > 0 ? systemClock.timeout(timeoutMs) : new AbortController().signal;
    const signal = AbortSignal.any([io.signal, limit]);
    const left = new Set<string>();
    const connection = await connect(flags, io.signal);
    try {
      const { client } = connection;
      const lookup = { client, retrier: new Retrier({ clock: systemClock, random: Math.random }), signal };
      return controller ? await waitForController(io, lookup) : await waitForAll({ io, left, lookup }, names);
    } catch (error) {
      io.signal.throwIfAborted();
      if (limit.aborted) {
        const what = controller ? "a controller that leads" : migrationsText(left);
        throw new KsvmError("WaitTimedOut", `Cannot see ${what} within ${durationText(timeoutMs)}`, { cause: error });
      }
      throw error;
    } finally {
      await connection.close();
    }
  },
});

function migrationsText(left: ReadonlySet<string>): string {
  return left.size === 0 ? "the state of any migration" : `the end of ${[...left].join(", ")}`;
}

/** @throws {KsvmError} Forbidden where the user may not see that. */
async function waitForController({ stdout }: CliIo, { client, retrier, signal }: NameLookup): Promise<ExitCode> {
  let forbiddenSince: number | undefined;
  const find = async (): Promise<boolean> => {
    try {
      const isRunning = await isControllerRunning({ client, clock: systemClock, retrier }, signal);
      forbiddenSince = undefined;
      return isRunning;
    } catch (error) {
      const now = systemClock.monotonic();
      forbiddenSince ??= now;
      // An API server that has just started may not know the roles yet.
      if (isForbidden(error) && now - forbiddenSince < DENIAL_PATIENCE_MS) {
        return false;
      }
      throw error;
    }
  };
  while (!(await find())) {
    await systemClock.sleep(POLL_MS, signal);
  }
  stdout.write("a controller leads\n");
  return EXIT.done;
}

interface WaitContext {
  readonly io: CliIo;
  readonly lookup: NameLookup;
  /** The names of what is not done. */
  readonly left: Set<string>;
}

async function waitForAll(context: WaitContext, names: readonly string[]): Promise<ExitCode> {
  const { io, left, lookup } = context;
  const { client, retrier, signal } = lookup;
  const read = (): Promise<Migrations> => retrier.run(() => readMigrations(client, { signal }), signal);
  let status = await read();
  const awaited = new Map<string, Awaited>();
  const isNamed = names.length > 0;
  for (const given of new Set(isNamed ? names : unfinishedIn(status))) {
    const one = await awaitedFor(lookup, given, { isNamed, status });
    awaited.set(one.name, one);
    left.add(one.name);
  }
  if (left.size === 0) {
    io.stdout.write("no migration is under way\n");
  }
  const tell = tellOn(io);
  for (; left.size > 0; status = await read()) {
    const failed = await lookAtAll(context, [...awaited.values()], { status, tell });
    if (failed !== undefined) {
      return EXIT_CODES[failed];
    }
    await (left.size > 0 ? systemClock.sleep(POLL_MS, signal) : undefined);
  }
  return EXIT.done;
}

type Tell = (name: string, verdict: WaitVerdict) => void;

/** Takes what is done out of what is left. @returns the state of the first that failed */
async function lookAtAll(
  { left }: WaitContext,
  awaited: readonly Awaited[],
  { status, tell }: { readonly status: Migrations; readonly tell: Tell },
): Promise<"failed" | "incomplete" | undefined> {
  for (const { look, name } of awaited.filter((one) => left.has(one.name))) {
    const verdict = await look(status);
    tell(name, verdict);
    if (verdict.state === "failed" || verdict.state === "incomplete") {
      return verdict.state;
    }
    if (verdict.state === "done") {
      left.delete(name);
    }
  }
  return undefined;
}

/** Shows what is new: what is waited for on stderr, what ended on stdout. */
function tellOn({ stderr, stdout }: CliIo): Tell {
  const told = new Map<string, string>();
  return (name, { state, text }) => {
    if (told.get(name) !== text) {
      told.set(name, text);
      const stream = state === "pending" ? stderr : stdout;
      stream.write(`${oneLine(`${name}: ${state === "pending" ? "waiting" : state}: ${text}`)}\n`);
    }
  };
}

/** Resources: a migration that has ended may be deleted at any time. */
function unfinishedIn({ migrations }: Migrations): readonly string[] {
  return migrations.filter(({ state }) => !isFinal(state)).map(({ resource }) => resource);
}

interface Found {
  /** Whether a user gives the name: of a CRD storedVersions is waited for then, else the end of what is under way. */
  readonly isNamed: boolean;
  readonly status: Migrations;
}

/** @throws {KsvmError} ResourceNotFound where no resource and no migration has the name. */
async function awaitedFor(lookup: NameLookup, given: string, { isNamed, status }: Found): Promise<Awaited> {
  const { client, retrier, signal } = lookup;
  const readCrd = (name: string): ReturnType<typeof findCrd> =>
    retrier.run(() => findCrd(client, name, { signal }), signal);
  const isMigration = status.migrations.some(({ name }) => name === given);
  // A migration may be called like the CRD, which may be stale again since that one succeeded.
  const isOnlyMigration = isMigration && !(await isCrd(lookup, given));
  const resource = isOnlyMigration ? undefined : await findFullName(lookup, given);
  if (resource !== undefined && (await readCrd(resource)) !== undefined) {
    const isAwaited = isNamed ? () => true : notOverIn(status);
    const linesIn = (now: Migrations): Migrations["migrations"] => ofResource(now, resource).filter(isAwaited);
    if (!isNamed && linesIn(status).every(isForKeys)) {
      return { name: resource, look: (now) => migrationsVerdict(lookup, linesIn(now).filter(isForKeys)) };
    }
    const look = async (now: Migrations): Promise<WaitVerdict> =>
      crdVerdictOf({ crd: await readCrd(resource), isForEnd: !isNamed, migrations: linesIn(now) });
    return { name: resource, look };
  }
  const name = resource ?? given;
  if (migrationsOf(status, name).length === 0) {
    throw new KsvmError("ResourceNotFound", `Cannot wait for "${given}": no CRD and no migration has this name`);
  }
  return { name, look: (now) => migrationsVerdict(lookup, migrationsOf(now, name)) };
}

/** One that succeeded is believed unless its CRD says otherwise, or, where there is none, nothing shows that ksvm has done it. */
async function migrationsVerdict(lookup: NameLookup, lines: Migrations["migrations"]): Promise<WaitVerdict> {
  const { client, retrier, signal } = lookup;
  const verdict = migrationsVerdictOf(lines);
  const last = newestOf(lines);
  if (verdict.state !== "done" || last === undefined) {
    return verdict;
  }
  const find = () => unlessForbidden(() => findCrd(client, last.resource, { signal }));
  return successVerdictOf(last, await retrier.run(find, signal));
}

type Line = Migrations["migrations"][number];

/** Leaves out what was over when the wait began. */
function notOverIn({ migrations }: Migrations): (line: Line) => boolean {
  const over = new Set(migrations.filter(({ state }) => isFinal(state)).map(keyOf));
  return (line) => !over.has(keyOf(line));
}

function keyOf({ controller, name }: Line): string {
  return `${controller}/${name}`;
}

/** A user who may not tell is believed to mean the migration. */
async function isCrd({ client, retrier, signal }: NameLookup, name: string): Promise<boolean> {
  const find = () => unlessForbidden(() => findCrd(client, name, { signal }));
  return (await retrier.run(find, signal)) !== undefined;
}

function ofResource({ migrations }: Migrations, resource: string): Migrations["migrations"] {
  return migrations.filter((line) => line.resource === resource);
}
