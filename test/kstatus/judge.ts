import { join } from "node:path";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";
import { RunningProgram } from "../processes/program.ts";

/** What is said of an object. */
export interface Judgement {
  readonly status: string;
  readonly message: string;
}

/**
 * Builds what says of an object what kstatus does, the library by which Helm 4 and Flux wait, or a health script of Argo CD.
 * @throws {Error} where Go cannot build it
 */
export async function ensureJudge(): Promise<Judge> {
  const path = join(CACHE_DIR, "kstatus", `judge-${process.platform}-${process.arch}`);
  // Its source may have changed since: Go knows, in a second.
  await buildOnce(path, (unfinished) =>
    goBuild("kstatus", ["-mod=readonly", "-o", unfinished, "."], import.meta.dirname),
  );
  return new Judge(path);
}

/** The program that {@link ensureJudge} builds. */
export class Judge {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** What kstatus says of an object, as it came from the API server. */
  kstatus(object: object): Promise<Judgement> {
    return this.#say(object, []);
  }

  /** What the script in a file says of it, run as Argo CD runs it. */
  argo(object: object, script: string): Promise<Judgement> {
    return this.#say(object, [script]);
  }

  async #say(object: object, args: readonly string[]): Promise<Judgement> {
    const { code, stdout, stderr } = await new RunningProgram(this.#path, args, { input: JSON.stringify(object) })
      .ended;
    if (code !== 0) throw new Error(`Cannot judge an object: ${stderr}`);
    return JSON.parse(stdout) as Judgement;
  }
}
