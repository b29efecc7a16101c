import tap from "tap";
import { KSVM, RunningProgram } from "../processes/program.ts";

const MIB = 2 ** 20;

/**
 * As the program ends, does what requests and their answers do: makes objects that live for a moment and are not used
 * again. Tells on standard error how large the space for new objects is by then, in bytes: the smallest of several sizes.
 * V8 collects no new objects while it marks the whole heap (--separate-gc-phases): it adds pages instead, beyond any
 * limit, --max-semi-space-size too, and gives them back when the marking has ended.
 */
const LOAD = `
  import { getHeapSpaceStatistics } from "node:v8";
  process.on("exit", () => {
    const recent = [];
    let smallest = Infinity;
    for (let i = 1; i <= 2_000_000; i++) {
      recent[i % 20_000] = { name: "object" + i, labels: { a: i, b: [i, i + 1] }, text: String(i).repeat(4) };
      if (i % 100_000 !== 0) continue;
      const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
      smallest = Math.min(smallest, space.space_size);
    }
    process.stderr.write(String(smallest));
  });
`;

/**
 * Before the program ends, sends requests to a server in the same process, and waits for what V8 compiles in another thread.
 * Tells on standard error by how much the largest resident set has grown, in KiB.
 */
const REQUESTS = `
  import { once } from "node:events";
  import { createServer } from "node:http";
  import { setTimeout } from "node:timers/promises";
  process.once("beforeExit", async () => {
    const { request } = await import("${import.meta.resolve("undici")}");
    const server = createServer((_, answer) => answer.end("{}")).listen(0, "127.0.0.1");
    await once(server, "listening");
    const before = process.resourceUsage().maxRSS;
    for (let i = 0; i < 300; i++) {
      const { body } = await request("http://127.0.0.1:" + server.address().port);
      await body.dump();
    }
    await setTimeout(1_000);
    process.stderr.write(String(process.resourceUsage().maxRSS - before));
    process.exit();
  });
`;

/** What Node tells on standard error, with a module loaded before the program. */
async function numberFrom(module: string, args: readonly string[]): Promise<number> {
  const preload = `data:text/javascript,${encodeURIComponent(module)}`;
  const { NODE_OPTIONS: _, ...env } = process.env;
  const { stderr } = await new RunningProgram(process.execPath, ["--import", preload, ...args], { env }).ended;
  // Anything else is a complaint about a flag that is unknown.
  if (!/^\d+$/.test(stderr)) throw new Error(stderr);
  return Number(stderr);
}

await tap.test("ksvm keeps the space for new objects at its initial size, whatever is allocated", async (t) => {
  const bytes = await numberFrom(LOAD, [KSVM, "--version"]);
  t.ok(bytes <= 4 * MIB, `${bytes} bytes`);
});

await tap.test("negative control: under the same load the space of a bare Node grows", async (t) => {
  const bytes = await numberFrom(LOAD, ["--eval", ""]);
  t.ok(bytes > 8 * MIB, `${bytes} bytes`);
});

await tap.test(
  "ksvm lets V8 compile the HTTP parser once only, without the 20 MiB of its optimizing compiler",
  async (t) => {
    const kib = await numberFrom(REQUESTS, [KSVM, "--version"]);
    t.ok(kib < 14 * 1_024, `${kib} KiB`);
  },
);

await tap.test("negative control: under the same requests a bare Node compiles it twice", async (t) => {
  const kib = await numberFrom(REQUESTS, ["--eval", ""]);
  t.ok(kib > 14 * 1_024, `${kib} KiB`);
});
