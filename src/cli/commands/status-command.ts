import { createLogUpdate } from "log-update";
import { systemClock } from "../../clock.ts";
import { KsvmError } from "../../errors.ts";
import { type ClusterStatus, readStatus } from "../../inventory/status.ts";
import { retry } from "../../kube/retry.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { findFullName } from "../shared/full-names.ts";
import { EXIT, type ExitCode } from "../render/exit-codes.ts";
import { choice, toggle } from "../flags/kinds.ts";
import { maybeName } from "../flags/operands.ts";
import { documentOf } from "../render/document.ts";
import type { CliIo } from "../render/io.ts";
import {
  describeChanges,
  migrationName,
  renderStatus,
  STATUS_FORMATS,
  type StatusFormat,
} from "../render/render-status.ts";
import { oneLine, printable } from "../render/printable.ts";

const POLL_MS = 2_000;
/** An outage of the API server that lasts longer ends a watch. */
const OUTAGE_MS = 900_000;
/** Fields whose change is no news: a document would come every few seconds. */
const SIGNS_OF_LIFE = ["renewed", "lookedAt"];

/** `ksvm status`: shows every migration and every freeze, or those of one resource. */
export const STATUS_COMMAND = defineCommand({
  path: "status",
  description:
    "Show the progress of every migration and every run, whether a controller leads, and which CRDs are frozen by whom.",
  examples: [
    "ksvm status",
    "ksvm status widgets.example.com",
    "ksvm status -w",
    "ksvm status -o name | xargs -r kubectl delete",
  ],
  operands: maybeName("a resource (plural.group) or a migration; all of them if no name is given"),
  flags: {
    watch: toggle({ short: "w", help: "keep showing changes until interrupted" }),
    output: choice(STATUS_FORMATS, {
      short: "o",
      placeholder: "format",
      default: "table",
      help: "output format; name is one line for each migration, as kubectl takes it",
    }),
  },
  async run(io, flags, given) {
    const { signal } = io;
    const connection = await connect(flags, signal);
    const { kube } = connection;
    let name = given;
    const read = async (): Promise<ClusterStatus> => {
      const status = await retry(kube, () => readStatus(kube, signal), { signal, forMs: OUTAGE_MS });
      return name === undefined ? status : statusOf(status, name);
    };
    try {
      let status = await read();
      if (given !== undefined && isEmpty(status)) {
        // It may be one of a resource's other names.
        name = (await findFullName({ client: kube, signal }, given)) ?? given;
        status = await read();
      }
      if (flags.watch) {
        return await watch(io, status, flags.output, read);
      }
      if (name !== undefined && isEmpty(status)) {
        throw new KsvmError("ResourceNotFound", `Cannot find a migration, a run or a freeze of "${name}"`);
      }
      const text = renderStatus(status, flags.output, systemClock.now());
      io.stdout.write(text === "" ? "" : `${printable(text)}\n`);
      return EXIT.done;
    } finally {
      await connection.close();
    }
  },
});

/** The part of a status that is about one resource or one migration. */
export function statusOf(status: ClusterStatus, name: string): ClusterStatus {
  const migrations = status.migrations.filter((line) => line.name === name || line.resource === name);
  const resources = new Set([name, ...migrations.map(({ resource }) => resource)]);
  return {
    ...status,
    migrations,
    runs: status.runs.filter(({ resource }) => resources.has(resource)),
    freezes: status.freezes.filter(({ crd }) => resources.has(crd)),
  };
}

function isEmpty({ freezes, migrations, runs }: ClusterStatus): boolean {
  return migrations.length + runs.length + freezes.length === 0;
}

/**
 * Shows what changes until it is interrupted, or until nobody reads it any more, as with `| head`: it learns of that
 * when it writes.
 */
async function watch(
  io: CliIo,
  first: ClusterStatus,
  format: StatusFormat,
  read: () => Promise<ClusterStatus>,
): Promise<ExitCode> {
  const show = watchOutput(io, format);
  const unread = new AbortController();
  const onError = (): void => unread.abort();
  io.stdout.on("error", onError);
  const ended = AbortSignal.any([io.signal, unread.signal]);
  try {
    for (let status = first; ; status = await read()) {
      show(status);
      await systemClock.sleep(POLL_MS, ended);
    }
  } catch (error) {
    if (io.signal.aborted) {
      return EXIT.interrupted;
    }
    if (unread.signal.aborted) {
      return EXIT.done;
    }
    throw error;
  } finally {
    io.stdout.off("error", onError);
    show(undefined);
  }
}

/** What shows each look; `undefined` is the end. */
function watchOutput(io: CliIo, format: StatusFormat): (status: ClusterStatus | undefined) => void {
  if (format === "name") return nameOutput(io);
  if (format !== "table") {
    return documentOutput(io, format);
  }
  return io.stdout.isTTY === true ? liveOutput(io) : lineOutput(io);
}

function liveOutput({ stdout }: CliIo): (status: ClusterStatus | undefined) => void {
  const screen = createLogUpdate(stdout, { showCursor: true });
  return (status) => {
    if (status === undefined) {
      screen.done();
    } else {
      screen(printable(renderStatus(status, "table", systemClock.now())));
    }
  };
}

/** The table once, and then a line for each change. */
function lineOutput({ stdout }: CliIo): (status: ClusterStatus | undefined) => void {
  let before: ClusterStatus | undefined;
  return (status) => {
    if (status !== undefined) {
      const table = (): readonly string[] => [printable(renderStatus(status, "table", systemClock.now()))];
      const lines = before === undefined ? table() : describeChanges(before, status).map(oneLine);
      stdout.write(lines.map((line) => `${line}\n`).join(""));
      before = status;
    }
  };
}

/** The name of each migration that is new or changed, as `kubectl get -w -o name` does. */
function nameOutput({ stdout }: CliIo): (status: ClusterStatus | undefined) => void {
  let before = new Map<string, string>();
  return (status) => {
    if (status === undefined) return;
    const now = new Map(status.migrations.map((line) => [migrationName(line), JSON.stringify(line)]));
    for (const [name, line] of now) if (before.get(name) !== line) stdout.write(`${oneLine(name)}\n`);
    before = now;
  };
}

/** A whole document each time that something changed: a line of JSON, or YAML after `---`. */
function documentOutput({ stdout }: CliIo, format: "json" | "yaml"): (status: ClusterStatus | undefined) => void {
  let before = "";
  return (status) => {
    const text = JSON.stringify(status, (key, value: unknown) => (SIGNS_OF_LIFE.includes(key) ? undefined : value));
    if (status !== undefined && text !== before) {
      const shown =
        format === "json" ? JSON.stringify(documentOf("Status", status)) : `---\n${renderStatus(status, "yaml", 0)}`;
      stdout.write(`${printable(shown)}\n`);
      before = text;
    }
  };
}
