import asyncHooks from "node:async_hooks";
import { syncBuiltinESMExports } from "node:module";

// Loaded before a test file. tap follows every promise by async hooks, to tell to which test an error belongs that nobody catches.
// That is half of the CPU time of a test that sends requests. Without it such an error ends the file, and the runner says so.
const NOTHING: asyncHooks.AsyncHook = { enable: () => NOTHING, disable: () => NOTHING };
asyncHooks.createHook = () => NOTHING;
syncBuiltinESMExports();
