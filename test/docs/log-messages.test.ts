import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tap from "tap";
import { logMessagesIn } from "./log-calls.ts";

const SRC = fileURLToPath(new URL("../../src/", import.meta.url));

/** Kubernetes' style: a constant that begins with a capital and ends without a full stop; what varies is a field. */
function isWellFormed(message: string): boolean {
  return /^"[A-Z](?:[^"\\]|\\.)*[^".\s]"$/.test(message);
}

await tap.test("log messages are constants that begin with a capital letter", async (t) => {
  const paths = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".ts"));
  const messages = paths.flatMap((path) => logMessagesIn(readFileSync(`${SRC}${path}`, "utf8")));
  t.ok(messages.length > 90, `${messages.length} messages were found`);
  t.same(
    messages.filter((message) => !isWellFormed(message)),
    [],
  );
});

const GOOD = [
  'logger.info("Did it");',
  'this.#options.logger.warn({ reason: messageOf(error), at: `${a("(")}, b` }, "Did it, and more (so far)",);',
  'const onLag = (a) => logger.info({ a }, "Did it"),\n  other = work({ b: "x" });',
  'const what = isOne ? "Did one" : "Did the other";\nlogger[isNew ? "info" : "debug"](facts, what);',
  'new FailureLog({ ...options, failing: "Cannot do it", working: "Doing it again" });',
  'reporter.error("as it is");',
];

const BAD: readonly [source: string, messages: readonly string[]][] = [
  ['logger.warn({ reason: messageOf(error) }, "cannot do it");', ['"cannot do it"']],
  ["this.#options.logger.info({}, `may ${what} now`);", ["`may ${what} now`"]],
  ['log[level](facts, "Did it.");', ['"Did it."']],
  ['const onRetry = (error) => logger.warn({ error }, "retrying"),\n  x = 1;', ['"retrying"']],
  ['new Retrier({ onLag: (a) => logger.info({ a }, "waiting"), b: "c" });', ['"waiting"']],
  ['logger.info({ a }, isOne ? "did one" : "Did the other");', ['"did one"']],
  ['logger.info({ a }, "Did " + what);', ['"Did " + what']],
  ["logger.info({ a }, textOf(a));", ["textOf(a)"]],
  ["logger.info({ a }, text);", ["text"]],
  ["const text = `Did ${it}`;\nlogger?.info(text);", ["`Did ${it}`"]],
  ["logger.error({ err: error });", ["{ err: error }"]],
  ['request.log.fatal({ a }, // a comment, with "a text"\n "did it");', ['// a comment, with "a text"\n "did it"']],
  ['new FailureLog({ clock, failing: "Cannot do it", working: "does it again" });', ['"does it again"']],
  ['const failing = `cannot ${it}`;\nnew FailureLog({ failing, working: "Did it" });', ["`cannot ${it}`"]],
  ["new FailureLog(options);", ["no failing", "no working"]],
];

await tap.test("negative control: other log messages are found, and no others", async (t) => {
  for (const source of GOOD)
    t.same(
      logMessagesIn(source).filter((message) => !isWellFormed(message)),
      [],
      source,
    );
  t.equal(logMessagesIn(GOOD.join("\n")).length, 7);
  for (const [source, messages] of BAD)
    t.same(
      logMessagesIn(source).filter((message) => !isWellFormed(message)),
      messages,
      source,
    );
});
