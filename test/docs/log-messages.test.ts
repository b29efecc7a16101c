import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import tap from "tap";

const SRC = fileURLToPath(new URL("../../src/", import.meta.url));
/** Up to the message, which comes last: facts may be an object, a call or a name. */
const CALL = /\b[lL]og(?:ger(?:Of\([^)]*\))?)?(?:\.(?:debug|info|warn|error)|\[[^\]]+\])\((.*?)\);/gs;
/** What a call or a FailureLog is given as message. */
const MESSAGE = /(["`])((?:(?!\1).)*)\1,?\s*$/s;

/** The messages of the log in a source text, templates in backquotes. */
function messagesIn(source: string): readonly string[] {
  const logged = [...source.matchAll(CALL)].flatMap(([, args = ""]) => MESSAGE.exec(args)?.[0].trim() ?? []);
  const ofFailures = [...source.matchAll(/\b(?:failing|working): (["`].*["`]),?$/gm)].map(([, text = ""]) => text);
  return [...logged, ...ofFailures];
}

/** Kubernetes' style: a constant that begins with a capital and ends without a full stop; what varies is a field. */
function isWellFormed(message: string): boolean {
  return /^"[A-Z][^"]*[^."]",?$/.test(message);
}

await tap.test("log messages are constants that begin with a capital letter", async (t) => {
  const paths = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".ts"));
  const messages = paths.flatMap((path) => messagesIn(readFileSync(`${SRC}${path}`, "utf8")));
  t.ok(messages.length > 60, `${messages.length} messages were found`);
  t.same(
    messages.filter((message) => !isWellFormed(message)),
    [],
  );
});

await tap.test("negative control: other log messages are found", async (t) => {
  const bad = messagesIn(`
    logger.warn({ reason: messageOf(error) }, "cannot do it");
    this.#options.logger.info({}, \`may \${what} now\`);
    log[level](facts, "Did it.");
    new FailureLog({ clock, logger, failing: "Cannot do it", working: "does it again" });
      working: \`does \${it}\`,
  `);
  t.equal(bad.filter((message) => !isWellFormed(message)).length, 4);
});
