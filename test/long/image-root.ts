import { execFileSync } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Lockfile } from "../../tools/cyclonedx.ts";
import { type RunningProgram, startProgram, type Teardown } from "../processes/program.ts";
import { bundle } from "../../tools/build.ts";

const ROOT = join(import.meta.dirname, "../..");
/** The user of the image, and its group. */
const USER = "65532:65532";
/** A user whom OpenShift chooses, from the range of a namespace, and its group. */
export const ANY_USER = "1000650000:0";

/** Why no image can be laid out here; `false` where it can. */
export function whyNoImageRoot(): string | false {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return "needs Linux and root, for chroot";
  try {
    execFileSync("unshare", ["--mount", "true"], { stdio: "ignore" });
    return false;
  } catch {
    return "needs the right to make a mount namespace";
  }
}

/** The files of the runtime image in a folder, with Node and its libraries in the place of the base image. */
export class ImageRoot {
  readonly dir: string;
  readonly #entrypoint: readonly string[];
  readonly #environment: readonly string[];

  private constructor(dir: string, dockerfile: string) {
    this.dir = dir;
    this.#entrypoint = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(dockerfile)?.[1] ?? "[]") as readonly string[];
    this.#environment = [...dockerfile.matchAll(/^ENV (\S+)$/gm)].map(([, setting = ""]) => setting);
  }

  /** Lays it out by what the last stage of the Dockerfile copies. It goes with the test. */
  static async make(t: Teardown): Promise<ImageRoot> {
    const dir = mkdtempSync(join(tmpdir(), "ksvm-image-"));
    t.teardown(() => rmSync(dir, { recursive: true, force: true }));
    // mkdtemp() makes it its owner's alone.
    chmodSync(dir, 0o755);
    const dockerfile = readFileSync(join(ROOT, "Dockerfile"), "utf8");
    const last = dockerfile.lastIndexOf("\nFROM ");
    const runtime = dockerfile.slice(last);
    await bundle();
    for (const [, from = "", to = ""] of runtime.matchAll(/^COPY --from=build (.*) (\S+)$/gm)) {
      for (const source of from.split(" ")) copyIntoApp(dir, source.replace(/^\/app\//, ""), to);
    }
    // A checkout under the umask 077, and what the Dockerfile does about it.
    execFileSync("chmod", ["-R", "go=", "."], { cwd: join(dir, "app") });
    const [, chmod = ":"] = /^RUN .*&& (chmod .*)$/m.exec(dockerfile.slice(0, last)) ?? [];
    execFileSync("sh", ["-c", chmod], { cwd: join(dir, "app") });
    const image = new ImageRoot(dir, dockerfile);
    const [node = ""] = image.#entrypoint;
    copy(realpathSync(process.execPath), join(dir, node));
    const libraries = execFileSync("ldd", [process.execPath], { encoding: "utf8" });
    for (const [path] of libraries.matchAll(/\/\S+/g)) copy(realpathSync(path), join(dir, path));
    for (const folder of ["dev", "proc", "etc"]) mkdirSync(join(dir, folder));
    return image;
  }

  /** Writes a file that is mounted into the pod, as a token is. @returns its path inside */
  mount(name: string, text: string): string {
    writeFileSync(join(this.dir, "etc", name), text, { mode: 0o644 });
    return `/etc/${name}`;
  }

  /**
   * Starts the image's program: its root is read-only. It ends with the test.
   * @param options.user with its group, by numbers: that of the image, if it is missing
   */
  start(
    t: Teardown,
    args: readonly string[],
    options: { readonly user?: string; readonly environment?: Readonly<Record<string, string>> } = {},
  ): RunningProgram {
    const { dir } = this;
    const { environment = {}, user = USER } = options;
    const set = [...this.#environment, ...Object.entries(environment).map(([name, value]) => `${name}=${value}`)];
    const prepare = [
      `mount --bind '${dir}' '${dir}'`,
      `mount --rbind /dev '${dir}/dev'`,
      `mount -t proc proc '${dir}/proc'`,
      `mount -o remount,ro,bind '${dir}'`,
      `cd '${dir}'`,
      ...set.map((setting) => `export '${setting}'`),
      `exec chroot --userspec=${user} '${dir}' "$@"`,
    ].join(" && ");
    const command = ["--mount", "sh", "-c", prepare, "sh", ...this.#entrypoint, ...args];
    return startProgram(t, "unshare", command, { withoutTap: true, timeoutMs: 600_000 });
  }
}

function copyIntoApp(dir: string, source: string, to: string): void {
  if (source === "deploy") {
    // What .dockerignore lets into the build.
    copyIntoApp(dir, "deploy/base/crds", "deploy/base/crds");
    return;
  }
  if (source !== "node_modules") {
    const target = to.endsWith("/") ? join(to, source) : to;
    copy(join(ROOT, source), join(dir, "app", target));
    return;
  }
  // What npm prune --omit=dev leaves.
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as Lockfile;
  for (const [path, { dev }] of Object.entries(packages)) {
    if (path !== "" && dev !== true) copy(join(ROOT, path), join(dir, "app", path));
  }
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to, { recursive: true, dereference: true });
}
