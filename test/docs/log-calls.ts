/** What writes to the log: a level of any logger, also where the level is chosen. A reporter writes for people. */
const CALL = /(?<!\breporter)(?:\??\.(?:trace|debug|info|warn|error|fatal)|[lL]og(?:ger)?\[[^\]]+\])\(/g;
const FAILURE_LOG = /\bnew FailureLog\(/g;
/** Where FailureLog itself writes what it was given. */
const GIVEN = /^(?:failing|working)$/;

/**
 * The messages of the log in a source text, as they are written there: a constant in its quotes, both where one of two is chosen.
 * What is no constant comes as the expression that it is.
 */
export function logMessagesIn(source: string): readonly string[] {
  const logged = [...source.matchAll(CALL)].flatMap((call) => {
    const message = partsOf(source, call.index + call[0].length - 1).at(-1) ?? `${call[0]})`;
    return GIVEN.test(message) ? [] : constantsOf(message, source);
  });
  const ofFailures = [...source.matchAll(FAILURE_LOG)].flatMap(({ index, 0: { length } }) => {
    const [given = ""] = partsOf(source, index + length - 1);
    const options = given.startsWith("{") ? partsOf(given, 0) : [];
    return ["failing", "working"].flatMap((name) => {
      const option = options.find((text) => text === name || text.startsWith(`${name}:`)) ?? `no ${name}`;
      return constantsOf(option.replace(/^\w+:\s*/, ""), source);
    });
  });
  return [...logged, ...ofFailures];
}

/** The constants that an expression may be; the expression itself where it is something else. */
function constantsOf(expression: string, source: string): readonly string[] {
  const [, yes, no] = /\?\s*("[^"]*")\s*:\s*("[^"]*")$/s.exec(expression) ?? [];
  if (yes !== undefined && no !== undefined) return [yes, no];
  const name = /^\w+$/.test(expression) ? expression : "-";
  // All that have this name: which of them is meant is not known here.
  const defined = [...source.matchAll(new RegExp(`\\bconst ${name} = ([^;]*);`, "g"))].map(([, value = ""]) => value);
  return defined.length === 0 ? [expression] : defined.flatMap((value) => constantsOf(value, source));
}

/** The parts between the commas of the bracket that begins at an index. */
function partsOf(source: string, begin: number): readonly string[] {
  const parts: string[] = [];
  endOf(source, begin, (from, to) => parts.push(source.slice(from, to).trim()));
  return parts.filter((part) => part !== "");
}

/** Where the text or bracket that begins at an index is over. `onPart` is told of what is between the commas of a bracket. */
function endOf(source: string, begin: number, onPart: (from: number, to: number) => void = () => undefined): number {
  const isText = `"'\``.includes(source[begin] ?? " ");
  let from = begin + 1;
  for (let at = begin + 1; at < source.length; at++) {
    const character = source[at] ?? "";
    if (isText) {
      if (character === source[begin]) return at + 1;
      if (character === "\\") at++;
      else if (source[begin] === "`" && source.startsWith("${", at)) at = endOf(source, at + 1) - 1;
    } else if (")]}".includes(character)) {
      onPart(from, at);
      return at + 1;
    } else if (`"'\`([{`.includes(character)) {
      at = endOf(source, at) - 1;
    } else if (source.startsWith("//", at)) {
      at = source.indexOf("\n", at);
    } else if (character === ",") {
      onPart(from, at);
      from = at + 1;
    }
  }
  throw new Error(`a bracket or text is not closed: ${source.slice(begin, begin + 80)}`);
}
