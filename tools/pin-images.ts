// Writes the digests of the images into the Dockerfile, where their registries answer: node tools/pin-images.ts
import { readFileSync, writeFileSync } from "node:fs";
import { pinImages } from "./image-digest.ts";

const FILE = new URL("../Dockerfile", import.meta.url);

try {
  const pinned = await pinImages(readFileSync(FILE, "utf8"));
  writeFileSync(FILE, pinned);
  process.stdout.write(`${[...pinned.matchAll(/^FROM (\S+)/gm)].map(([, image]) => image).join("\n")}\n`);
} catch (error) {
  const { message, cause } = error as Error;
  const why = cause instanceof Error ? `: ${cause.message}` : "";
  process.stderr.write(`${message}${why}; the Dockerfile was not changed\n`);
  process.exitCode = 1;
}
