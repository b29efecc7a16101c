import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import tap from "tap";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
/** Tells on standard error, at the end, how large the space for new objects has become. */
const TELL = `
  import { getHeapSpaceStatistics } from "node:v8";
  process.on("exit", () => {
    const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === "new_space");
    process.stderr.write(String(space?.space_size));
  });
`;

await tap.test(
  "ksvm keeps the space for new objects at its initial size, for which the whole program is enough",
  async (t) => {
    const preload = `data:text/javascript,${encodeURIComponent(TELL)}`;
    const { stderr } = await promisify(execFile)(process.execPath, ["--import", preload, MAIN, "--version"]);
    t.match(stderr, /^\d+$/, "no flag is unknown");
    t.ok(Number(stderr) <= 4 * 2 ** 20, `${stderr} bytes`);
  },
);
