import { type Logger, pino } from "pino";
import type { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import { thrownText } from "./thrown-text.ts";

/** The logger of a process, which looks at each error that it is given. @param level of the lines that the trace has; "silent" for none */
export function programLogger(world: World, { name }: SimProcess, level: "info" | "silent"): Logger {
  const err = (error: unknown): string => thrownText(world, name, error);
  const write = (line: string): void => {
    if (level !== "silent") world.tell(name, line.slice(1, -2));
  };
  const options = { level: level === "silent" ? "warn" : level, base: null, timestamp: false, serializers: { err } };
  return pino(options, { write });
}
