import { type CompletedCommand, type CompletedFlag, lastWordOf, wordsAfter } from "./completions.ts";

/** A script for fish. */
export function fishCompletion(commands: readonly CompletedCommand[]): string {
  const groups = wordsAfter(commands);
  const words = [...groups].flatMap(([parent, children]) =>
    children.map((child) =>
      lineOf(conditionOfWords(parent, children), `-a ${lastWordOf(child)} -d ${quoted(child.help)}`),
    ),
  );
  const parentWords = [...groups.keys()].filter((parent) => parent !== "");
  const parents = parentWords.map((parent) => lineOf("__fish_use_subcommand", `-a ${parent}`));
  const flags = commands.flatMap((command) =>
    command.flags.map((flag) => lineOf(conditionOfFlags(command, parentWords), flagOptions(flag))),
  );
  return `# fish completion of ksvm: ksvm completion fish > ~/.config/fish/completions/ksvm.fish
complete -c ksvm -f
${[...parents, ...words, ...flags].join("\n")}
`;
}

function lineOf(condition: string, rest: string): string {
  return `complete -c ksvm -n ${quoted(condition)} ${rest}`;
}

function conditionOfWords(parent: string, children: readonly CompletedCommand[]): string {
  return parent === ""
    ? "__fish_use_subcommand"
    : `__fish_seen_subcommand_from ${parent}; and not __fish_seen_subcommand_from ${children.map(lastWordOf).join(" ")}`;
}

/** The word of a command may be one of another group's as well: `status`, and `certs status`. */
function conditionOfFlags({ path }: CompletedCommand, parents: readonly string[]): string {
  const words = path.split(" ");
  const seen = words.map((word) => `__fish_seen_subcommand_from ${word}`);
  const others = parents.filter((parent) => !words.includes(parent));
  return [...seen, `not __fish_seen_subcommand_from ${others.join(" ")}`].join("; and ");
}

function flagOptions({ name, short, help, value }: CompletedFlag): string {
  const values = { none: "", any: " -x", file: " -r -F" } as const;
  const isList = value !== "none" && value !== "any" && value !== "file";
  const takes = isList ? ` -x -a ${quoted(value.join(" "))}` : values[value];
  return `-l ${name}${short === undefined ? "" : ` -s ${short}`}${takes} -d ${quoted(help)}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
