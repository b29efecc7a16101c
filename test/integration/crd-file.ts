import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Test } from "tap";
import { stringify } from "yaml";

/** A file with these manifests, as YAML. It ends with the test. */
export function fileOf(t: Test, ...manifests: readonly object[]): string {
  const path = join(t.testdir({}), "crds.yaml");
  writeFileSync(path, manifests.map((manifest) => stringify(manifest)).join("---\n"));
  return path;
}
