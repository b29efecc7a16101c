#!/usr/bin/env node
// Nothing is imported here, and nothing newer than Node.js 14 is written: an older one than is needed has to read this
// file to the end, and fails at the first import that it does not know.
const neededNode = 24;
const code = "NodeUnsupported";
if (Number(process.versions.node.split(".")[0]) < neededNode) {
  process.stderr.write(
    `error: Cannot run on Node.js ${process.versions.node}: ksvm needs ${neededNode} or newer, see https://nodejs.org/en/download [${code}]\n`,
  );
  process.exitCode = 1;
} else {
  await import("./start.ts");
}
