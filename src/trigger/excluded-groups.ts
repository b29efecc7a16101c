/** Reads the value of `--trigger-exclude-groups`: names with commas between them; `core` is the core group. */
export function excludedGroupsOf(value: string): readonly string[] {
  const names = value.split(",").map((name) => name.trim());
  return names.filter((name) => name !== "").map((name) => (name === "core" ? "" : name));
}
