import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import tap from "tap";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const MIB = 2 ** 20;

/**
 * As the program ends, does what requests and their answers do: makes objects that live for a moment and then nobody
 * needs. Tells on standard error how large the space for new objects has become by that, in bytes.
 */
const LOAD = `
  import { getHeapSpaceStatistics } from "node:v8";
  process.on("exit", () => {
    const recent = [];
    for (let i = 0; i < 300_000; i++) {
      recent[i % 20_000] = { name: "object" + i, labels: { a: i, b: [i, i + 1] }, text: String(i).repeat(4) };
    }
    const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
    process.stderr.write(String(space?.space_size));
  });
`;

/** The space is grown now and then all the same, in one process of several, when a collection comes at a bad moment. */
const PROCESSES = 6;

/** The smallest size of the space for new objects after the load, of several processes. */
async function smallestNewSpace(args: readonly string[]): Promise<number> {
  const sizes: number[] = [];
  for (let index = 0; index < PROCESSES; index++) sizes.push(await newSpaceAfterLoad(args));
  return Math.min(...sizes);
}

/** The size of the space for new objects after the load. */
async function newSpaceAfterLoad(args: readonly string[]): Promise<number> {
  const preload = `data:text/javascript,${encodeURIComponent(LOAD)}`;
  const { NODE_OPTIONS: _, ...env } = process.env;
  const { stderr } = await promisify(execFile)(process.execPath, ["--import", preload, ...args], { env });
  // Anything else is a complaint about a flag that is unknown.
  if (!/^\d+$/.test(stderr)) throw new Error(stderr);
  return Number(stderr);
}

await tap.test("ksvm keeps the space for new objects at its initial size, whatever is allocated", async (t) => {
  const bytes = await smallestNewSpace([MAIN, "--version"]);
  t.ok(bytes <= 4 * MIB, `${bytes} bytes`);
});

await tap.test("negative control: under the same load the space of a bare Node grows", async (t) => {
  const bytes = await smallestNewSpace(["--eval", ""]);
  t.ok(bytes > 8 * MIB, `${bytes} bytes`);
});
