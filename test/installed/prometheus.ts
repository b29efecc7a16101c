import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { buildOnce, CACHE_DIR, goBuild } from "../control-plane/binaries.ts";

const GO_FOLDER = join(import.meta.dirname, "prometheus");
const MODULE = "github.com/prometheus/prometheus";

/** What the tests of deploy/components/monitoring run. */
export type PrometheusProgram = "prometheus" | "promtool";

/**
 * Builds prometheus or promtool, once per version, into .cache/control-plane/prometheus: without its web pages, which need npm,
 * and without service discovery, for which the tests have no use.
 * @returns the absolute path of the program
 * @throws {Error} where Go cannot build it
 */
export async function ensurePrometheus(name: PrometheusProgram): Promise<string> {
  const [, version = ""] = new RegExp(`${MODULE} (v\\S+)`).exec(readFileSync(join(GO_FOLDER, "go.mod"), "utf8")) ?? [];
  const program = join(CACHE_DIR, "prometheus", `${version}-${process.platform}-${process.arch}`, name);
  if (!existsSync(program)) {
    const args = ["-mod=readonly", "-p", "2", "-tags", "remove_all_sd", "-ldflags", "-s -w"];
    await buildOnce(program, (unfinished) =>
      goBuild(name, [...args, "-o", unfinished, `${MODULE}/cmd/${name}`], GO_FOLDER),
    );
  }
  return program;
}
