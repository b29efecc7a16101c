import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CACHE_DIR } from "../control-plane/binaries.ts";
import { readVersions } from "../control-plane/versions.ts";
import { RunningProgram } from "../processes/program.ts";
import { KUBERNETES } from "./in-tree-suite.ts";
import { type PinnedFile, pinProblems } from "./pinned-file.ts";

/** A file of a Go package: one of another project as it is, or with a text of its own. */
export interface GoFile {
  readonly name: string;
  /** The path of the file, where {@link text} does not take its place. */
  readonly path: string;
  readonly text?: string;
}

/** A package of the module in .cache whose files lie elsewhere: Go refuses to replace files in its module cache. */
export interface GoPackage {
  /** The folder in the module, such as "suite". */
  readonly folder: string;
  readonly files: readonly GoFile[];
}

/** The path by which files of the module import its packages. */
export const MODULE = "ksvm/conformance";

/** Everything that the suites make. It may be thrown away. */
export const WORK_DIR = join(CACHE_DIR, "..", "conformance");

/** The folder of the module, made here. Go knows it by its real path, and so must the overlay. */
function moduleDir(): string {
  const dir = join(WORK_DIR, "module");
  mkdirSync(dir, { recursive: true });
  return realpathSync(dir);
}

/** Its checksums are in test/control-plane/go.sum, as those of its versions are. */
const TEST_ONLY = [
  "github.com/onsi/gomega v1.39.1",
  "github.com/stretchr/testify v1.11.1",
  "go.uber.org/goleak v1.3.0",
];

/** A Go module in .cache with the dependencies of the tests' control plane, and the sources of Kubernetes that it names. */
export class GoWorkspace {
  readonly dir: string;
  /** The folder of the module k8s.io/kubernetes, in the module cache of Go. */
  readonly kubernetes: string;

  private constructor(dir: string, kubernetes: string) {
    this.dir = dir;
    this.kubernetes = kubernetes;
  }

  /** @throws {Error} with one line where Go is missing, or the sources of Kubernetes are of another version */
  static async prepare(): Promise<GoWorkspace> {
    const { pinnedKubernetes } = readVersions();
    if (pinnedKubernetes !== KUBERNETES) {
      throw new Error(`Cannot use Kubernetes ${pinnedKubernetes}: checksums and edits are of ${KUBERNETES}`);
    }
    const controlPlane = join(import.meta.dirname, "..", "control-plane");
    const dir = moduleDir();
    const goMod = readFileSync(join(controlPlane, "go.mod"), "utf8").replace(/^module .*$/m, `module ${MODULE}`);
    writeFileSync(join(dir, "go.mod"), `${goMod}\nrequire (\n${TEST_ONLY.map((line) => `\t${line}\n`).join("")})\n`);
    writeFileSync(join(dir, "go.sum"), readFileSync(join(controlPlane, "go.sum")));
    return new GoWorkspace(dir, await sourcesOf("k8s.io/kubernetes", dir));
  }

  /** @throws {Error} naming each file of Kubernetes that is not the pinned one */
  verify(pins: readonly PinnedFile[]): void {
    verifyFolder(`k8s.io/kubernetes ${KUBERNETES}`, this.kubernetes, pins);
  }

  /** The text of a file of Kubernetes. */
  read(path: string): string {
    return readFileSync(join(this.kubernetes, path), "utf8");
  }

  /**
   * Writes what the packages have of their own, and the file for `go -overlay` that puts everything in its place.
   * @returns the path of that file
   */
  writeOverlay(packages: readonly GoPackage[]): string {
    const generated = join(WORK_DIR, "generated");
    const replace: Record<string, string> = {};
    for (const { folder, files } of packages) {
      // Tests run in the folder of their package, so there has to be one.
      mkdirSync(join(this.dir, folder), { recursive: true });
      rmSync(join(generated, folder), { recursive: true, force: true });
      mkdirSync(join(generated, folder), { recursive: true });
      for (const { name, path, text } of files) {
        const own = join(generated, folder, name);
        if (text !== undefined) writeFileSync(own, text);
        replace[join(this.dir, folder, name)] = text === undefined ? path : own;
      }
    }
    return writeOverlayFile(replace);
  }
}

/** Writes a file for `go -overlay`, under a name that follows from its content. @returns its path */
export function writeOverlayFile(replace: Readonly<Record<string, string>>): string {
  const text = `${JSON.stringify({ Replace: replace }, undefined, 2)}\n`;
  const name = createHash("sha256").update(text).digest("hex").slice(0, 12);
  mkdirSync(WORK_DIR, { recursive: true });
  const path = join(WORK_DIR, `overlay-${name}.json`);
  writeFileSync(path, text);
  return path;
}

/** @throws {Error} naming each file that is not the pinned one */
export function verifyFolder(project: string, root: string, pins: readonly PinnedFile[]): void {
  const problems = pinProblems(project, pins, {
    read: (path) => (existsSync(join(root, path)) ? readFileSync(join(root, path)) : undefined),
    list: (folder) =>
      existsSync(join(root, folder))
        ? readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
            .filter((entry) => entry.isFile())
            .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
        : [],
  });
  if (problems.length > 0) throw new Error(problems.join("\n"));
}

async function sourcesOf(module: string, cwd: string): Promise<string> {
  const go = new RunningProgram("go", ["mod", "download", "-json", `${module}@${KUBERNETES}`], { cwd });
  const { code, stdout, stderr } = await go.ended.catch((cause: unknown) => {
    throw new Error("Cannot run the suites: no Go toolchain found on PATH", { cause });
  });
  if (code !== 0) throw new Error(`Cannot get ${module} ${KUBERNETES}: ${stderr.trimEnd()}`);
  return (JSON.parse(stdout) as { readonly Dir: string }).Dir;
}
