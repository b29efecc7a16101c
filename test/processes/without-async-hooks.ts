import asyncHooks from "node:async_hooks";
import { syncBuiltinESMExports } from "node:module";

// Loaded before a test file. tap follows every promise by async hooks, to tell to which test an error belongs that nobody catches.
// That is half of the CPU time of a test that sends requests. Without it such an error ends the file, and the runner says so.
const NOTHING: asyncHooks.AsyncHook = { enable: () => NOTHING, disable: () => NOTHING };
asyncHooks.createHook = () => NOTHING;
syncBuiltinESMExports();

/** Where tap keeps its one instance. */
const TAP = Symbol.for("TAP private constructor");

// tap ends a file that does nothing for a moment, such as one that awaits something between two tests. The tests that follow are left
// out then, and tap only writes so.
process.on("exit", () => {
  const tap = (globalThis as Record<symbol, { readonly results?: { readonly ok: boolean } } | undefined>)[TAP];
  if (tap?.results?.ok === false) process.exitCode = 1;
});
