import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { freePorts } from "../control-plane/ports.ts";
import { typeMetaOf } from "../control-plane/stored-value.ts";
import { eventually } from "../integration/cluster.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";
import { startProgram, type Teardown } from "../processes/program.ts";
import { ensureKine } from "./kine.ts";

/** The newest row of each key that is not deleted. */
const NEWEST =
  "SELECT name, value FROM kine AS row WHERE name LIKE ? AND deleted = 0 AND id = (SELECT MAX(id) FROM kine WHERE name = row.name)";

/** One SQLite database, and a kine for each API server: each says what it last read. They end with the test. */
export class KineDatastore {
  /** What stands for etcd in the flags of an API server, one for each kine. */
  readonly urls: readonly string[];
  readonly #path: string;

  private constructor(path: string, urls: readonly string[]) {
    [this.#path, this.urls] = [path, urls];
  }

  /** Starts as many kines. */
  static async start(t: Teardown, count: number): Promise<KineDatastore> {
    const program = await ensureKine();
    const dir = mkdtempSync(join(tmpdir(), "ksvm-kine-"));
    t.teardown(() => rmSync(dir, { recursive: true, force: true }));
    const path = join(dir, "state.db");
    const ports = await freePorts(count);
    for (const [index, port] of ports.entries()) {
      const kine = startProgram(t, program, [
        `--listen-address=127.0.0.1:${port}`,
        `--endpoint=sqlite://${path}?_journal_mode=WAL&_busy_timeout=30000&_synchronous=NORMAL&_txlock=immediate&cache=shared`,
        "--metrics-bind-address=0",
      ]);
      const isReady = async (): Promise<boolean> => {
        if (!kine.isRunning) throw new Error(`kine ended:\n${kine.stderr}`);
        return kine.stderr.includes("Kine available at");
      };
      await eventually(isReady, `kine ${index} serves`);
    }
    return new KineDatastore(
      path,
      ports.map((port) => `http://127.0.0.1:${port}`),
    );
  }

  /** How many objects the database has in each version. */
  storedAs({ plural }: TestKind): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const { value } of this.#rows(NEWEST, `/registry/${GROUP}/${plural}/%`)) {
      const version = typeMetaOf(Buffer.from(value as Uint8Array)).apiVersion.slice(GROUP.length + 1);
      counts[version] = (counts[version] ?? 0) + 1;
    }
    return counts;
  }

  #rows(query: string, name: string): readonly Record<string, unknown>[] {
    const database = new DatabaseSync(this.#path, { readOnly: true });
    try {
      return database.prepare(query).all(name);
    } finally {
      database.close();
    }
  }
}
