import { type CompletedCommand, type CompletedFlag, lastWordOf, wordsAfter } from "./completions.ts";

/** A script for bash, from 4 on. */
export function bashCompletion(commands: readonly CompletedCommand[]): string {
  const groups = wordsAfter(commands);
  const parents = [...groups.keys()].filter((parent) => parent !== "");
  const words = [...groups].map(([parent, children]) => {
    const both = parent === "" ? [...children.map(lastWordOf), ...parents, "help"] : children.map(lastWordOf);
    return `    "${parent}") words="${both.join(" ")}" ;;`;
  });
  return `# bash completion of ksvm: source <(ksvm completion bash)
_ksvm() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD - 1]}"
  local first="" path="" words="" flags="" from=1
  # kubectl hands over its own words as well.
  [[ "\${COMP_WORDS[0]##*/}" == kubectl && "\${COMP_WORDS[1]}" == ksvm ]] && from=2
  first="\${COMP_WORDS[from]}"
  if (( COMP_CWORD > from )); then path="$first"; fi
  case "$path" in
    ${parents.map((parent) => `"${parent}"`).join(" | ")})
      if (( COMP_CWORD > from + 1 )); then path="$first \${COMP_WORDS[from + 1]}"; fi ;;
  esac
  case "$path:$previous" in
${commands.flatMap((command) => command.flags.flatMap((flag) => valueCase(command, flag))).join("\n")}
  esac
  case "$path" in
${words.join("\n")}
  esac
  case "$path" in
${commands.map((command) => `    "${command.path}") flags="${command.flags.map(({ name }) => `--${name}`).join(" ")}" ;;`).join("\n")}
  esac
  if [[ "$current" == -* ]]; then words="$flags"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _ksvm ksvm kubectl-ksvm
`;
}

function valueCase({ path }: CompletedCommand, { name, short, value }: CompletedFlag): readonly string[] {
  if (value === "none") {
    return [];
  }
  const patterns = [`"${path}:--${name}"`, ...(short === undefined ? [] : [`"${path}:-${short}"`])].join(" | ");
  const reply =
    value === "any" ? "" : `$(compgen ${value === "file" ? "-f" : `-W "${value.join(" ")}"`} -- "$current")`;
  return [`    ${patterns}) COMPREPLY=(${reply}); return ;;`];
}
