// Writes sbom.cdx.json: every package of the image, by package-lock.json: node tools/sbom.ts
import { readFileSync, writeFileSync } from "node:fs";
import { bomOf, type Lockfile } from "./cyclonedx.ts";

const ROOT = new URL("../", import.meta.url);
const lockfile = JSON.parse(readFileSync(new URL("package-lock.json", ROOT), "utf8")) as Lockfile;
writeFileSync(new URL("sbom.cdx.json", ROOT), `${JSON.stringify(bomOf(lockfile), undefined, 2)}\n`);
