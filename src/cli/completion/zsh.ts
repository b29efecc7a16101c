import { type CompletedCommand, type CompletedFlag, lastWordOf, wordsAfter } from "./completions.ts";

/** A function for zsh, to be autoloaded or sourced. */
export function zshCompletion(commands: readonly CompletedCommand[]): string {
  const groups = wordsAfter(commands);
  const parents = [...groups.keys()].filter((parent) => parent !== "");
  const nested = parents.map(
    (parent) => `    ${parent})
      if (( CURRENT == 3 )); then
        words_of=(${described(groups.get(parent) ?? [])})
        _describe command words_of
        return
      fi
      line="$words[2] $words[3]" ;;`,
  );
  const cases = commands.map(
    (command) => `    ${quoted(command.path)}) _arguments ${command.flags.map(argumentOf).join(" ")} '*:name:' ;;`,
  );
  return `#compdef ksvm kubectl-ksvm
# zsh completion of ksvm: ksvm completion zsh > "\${fpath[1]}/_ksvm", or source <(ksvm completion zsh)
_ksvm() {
  local -a words_of
  local line="$words[2]"
  if (( CURRENT == 2 )); then
    words_of=(${described(groups.get("") ?? [], [...parents, "help"])})
    _describe command words_of
    return
  fi
  case "$words[2]" in
${nested.join("\n")}
  esac
  case "$line" in
${cases.join("\n")}
  esac
}
if [[ "$funcstack[1]" == _ksvm ]]; then _ksvm "$@"; else compdef _ksvm ksvm kubectl-ksvm; fi
`;
}

function described(children: readonly CompletedCommand[], more: readonly string[] = []): string {
  return [...children.map((one) => quoted(`${lastWordOf(one)}:${one.help}`)), ...more].join(" ");
}

function argumentOf({ name, short, help, value }: CompletedFlag): string {
  const about = `[${help.replaceAll(/[[\]:]/g, " ")}]`;
  const list = value === "none" || value === "any" || value === "file" ? "" : `(${value.join(" ")})`;
  const action = value === "none" ? "" : `:value:${value === "file" ? "_files" : list}`;
  const long = quoted(`--${name}${about}${action}`);
  return short === undefined ? long : `${long} ${quoted(`-${short}${about}${action}`)}`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
