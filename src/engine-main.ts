import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import { systemClock } from "./clock.ts";
import { messageOf } from "./errors.ts";
import { connect } from "./kube/connect.ts";
import { migrateBuiltIn } from "./migrator/migrate-built-in.ts";
import { CleanupFailed, migrateCrds } from "./migrator/migrate-crd.ts";
import type { MigrateOptions, MigrationEnd } from "./migrator/types.ts";

// A driver to try the engine, until the command line runs on it.

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    kubeconfig: { type: "string" },
    context: { type: "string" },
    settle: { type: "string" },
    "apiserver-endpoints": { type: "string" },
    "ignore-apiserver": { type: "string" },
    "max-qps": { type: "string" },
    "max-in-flight": { type: "string" },
    "dry-run": { type: "boolean", default: false },
    force: { type: "boolean", default: false },
    "built-in": { type: "boolean", default: false },
    quiet: { type: "boolean", default: false },
  },
});
const interrupted = new AbortController();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(name, () => interrupted.abort(new Error("interrupted")));
}
const { signal } = interrupted;
const { context, kubeconfig } = values;
const random = Math.random;
const connected = await connect(
  { kubeconfig, context, variables: process.env },
  { clock: systemClock, random, signal },
);
const numberOf = (text: string | undefined): number | undefined => (text === undefined ? undefined : Number(text));
const [settle, maxQps, maxInFlight] = [values.settle, values["max-qps"], values["max-in-flight"]].map(numberOf);
const options: MigrateOptions = {
  identity: `${hostname()}-${randomUUID().slice(0, 8)}`,
  dryRun: values["dry-run"],
  force: values.force,
  endpoints: values["apiserver-endpoints"]?.split(","),
  ignored: values["ignore-apiserver"]?.split(","),
  ...(settle === undefined ? {} : { settleMs: settle * 1_000 }),
  ...(maxQps === undefined ? {} : { maxQps }),
  ...(maxInFlight === undefined ? {} : { maxInFlight }),
  signal,
  onEvent: (event, resource) => {
    if (!values.quiet) console.error(`${resource}: ${JSON.stringify(event)}`);
  },
};
const migrate = async (name: string): Promise<MigrationEnd> => {
  try {
    return { name, result: await migrateBuiltIn(connected.client, name, options) };
  } catch (error) {
    return { name, error };
  }
};
const ends = values["built-in"]
  ? await Promise.all(positionals.map(migrate))
  : await migrateCrds(connected.client, positionals, options);
let code = 0;
for (const end of ends) {
  if ("error" in end) {
    if (end.error instanceof CleanupFailed) console.log(JSON.stringify(end.error.result));
    console.error(`error: ${end.name}: ${messageOf(end.error)}`);
    code = 1;
  } else {
    console.log(JSON.stringify(end.result));
    if (end.result.outcome === "incomplete") code = Math.max(code, 3);
  }
}
await connected.close();
process.exitCode = signal.aborted ? 130 : code;
