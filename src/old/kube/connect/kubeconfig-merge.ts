import { dirname, isAbsolute, resolve, sep } from "node:path";
import { LineCounter, parseDocument } from "yaml";

/** An entry of a kubeconfig, its values as they stand there. */
export type RawEntry = Readonly<Record<string, unknown>>;

/** A kubeconfig, or several that were merged. */
export interface Kubeconfig {
  /** Empty where there is none. */
  readonly currentContext: string;
  readonly clusters: ReadonlyMap<string, RawEntry>;
  readonly users: ReadonlyMap<string, RawEntry>;
  readonly contexts: ReadonlyMap<string, RawEntry>;
}

const FILES_OF_CLUSTER = ["certificate-authority"];
const FILES_OF_USER = ["client-certificate", "client-key", "tokenFile"];

/**
 * Reads a kubeconfig. Files that it names are relative to the folder it lies in; so is the command of an exec plugin, unless
 * that is looked for in PATH.
 * @param path absolute
 * @throws {Error} where it is no kubeconfig, or defines a name twice. Its message quotes none of the text, which holds credentials.
 */
export function parseKubeconfig(text: string, path: string): Kubeconfig {
  const folder = dirname(path);
  const value = valueOf(text);
  const raw = entryOf(value);
  if (raw === undefined && value !== null) {
    throw new Error("it is not a map");
  }
  const { "current-context": current, clusters, contexts, users } = raw ?? {};
  return {
    currentContext: textOf(current) ?? "",
    clusters: byName(clusters, "cluster", (entry) => withAbsolutePaths(entry, FILES_OF_CLUSTER, folder)),
    users: byName(users, "user", (entry) =>
      withAbsoluteCommand(withAbsolutePaths(entry, FILES_OF_USER, folder), folder),
    ),
    contexts: byName(contexts, "context", (entry) => entry),
  };
}

/** The errors and warnings of the parser quote the line that they are about, and the names of aliases: only code and place are told. */
function valueOf(text: string): unknown {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    uniqueKeys: false,
    intAsBigInt: true,
    logLevel: "error",
    prettyErrors: false,
    lineCounter: lines,
  });
  const [error] = document.errors;
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0]);
    throw new Error(
      `it is not valid YAML at line ${line}, column ${col} (${error.code.toLowerCase().replaceAll("_", " ")})`,
    );
  }
  try {
    return document.toJS();
  } catch {
    throw new Error("it is not valid YAML: an alias has no anchor before it, or too much follows from aliases");
  }
}

/**
 * Merges kubeconfigs as client-go does: the first that defines a cluster, user or context defines all of it, and the first
 * that has a current context sets it.
 *
 * https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/#merging-kubeconfig-files
 */
export function mergeKubeconfigs(kubeconfigs: readonly Kubeconfig[]): Kubeconfig {
  const merged = (kind: "clusters" | "users" | "contexts"): ReadonlyMap<string, RawEntry> =>
    new Map(kubeconfigs.toReversed().flatMap((kubeconfig) => [...kubeconfig[kind]]));
  return {
    currentContext: kubeconfigs.find(({ currentContext }) => currentContext !== "")?.currentContext ?? "",
    clusters: merged("clusters"),
    users: merged("users"),
    contexts: merged("contexts"),
  };
}

/** A value that is written as text, or as a number or truth value where text is meant; `undefined` where it is empty. */
export function textOf(value: unknown): string | undefined {
  const isScalar = ["string", "bigint", "number", "boolean"].includes(typeof value);
  const text = isScalar ? String(value) : "";
  return text === "" ? undefined : text;
}

/** A map; `undefined` where it is something else. */
export function entryOf(value: unknown): RawEntry | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as RawEntry) : undefined;
}

/** A list of text; empty where it is something else. */
export function listOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.map((item) => textOf(item) ?? "") : [];
}

function byName(list: unknown, kind: string, read: (entry: RawEntry) => RawEntry): ReadonlyMap<string, RawEntry> {
  const found = new Map<string, RawEntry>();
  for (const item of Array.isArray(list) ? list : []) {
    const named = entryOf(item) ?? {};
    const name = textOf(named["name"]) ?? "";
    if (found.has(name)) {
      throw new Error(`it defines ${kind} "${name}" twice`);
    }
    found.set(name, read(entryOf(named[kind]) ?? {}));
  }
  return found;
}

function withAbsolutePaths(entry: RawEntry, names: readonly string[], folder: string): RawEntry {
  const paths = names.flatMap((name) => {
    const path = textOf(entry[name]);
    return path === undefined ? [] : [[name, isAbsolute(path) ? path : resolve(folder, path)]];
  });
  return { ...entry, ...Object.fromEntries(paths) };
}

function withAbsoluteCommand(entry: RawEntry, folder: string): RawEntry {
  const exec = entryOf(entry["exec"]);
  const command = textOf(exec?.["command"]);
  return command === undefined || !command.includes(sep)
    ? entry
    : { ...entry, exec: { ...exec, command: resolve(folder, command) } };
}
