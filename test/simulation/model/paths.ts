/** What a path of the API names. */
export interface ResourcePath {
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
  readonly subresource?: string | undefined;
}

/** What paths name that were asked for lately: checks and API servers ask for the same ones again and again. */
const known = new Map<string, ResourcePath | undefined>();
const MAX_KNOWN = 1_000;

/** A path that names a resource or an object; `undefined` for any other one. */
export function resourcePathOf(path: string): ResourcePath | undefined {
  let found = known.get(path);
  if (found === undefined && !known.has(path)) {
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(path, (found = parsed(path)));
  }
  return found;
}

function parsed(path: string): ResourcePath | undefined {
  const [, root, ...rest] = path.split("/");
  if (root === "api") return partsOf("", rest);
  return root === "apis" ? partsOf(rest[0] ?? "", rest.slice(1)) : undefined;
}

function partsOf(group: string, [version, ...rest]: readonly string[]): ResourcePath | undefined {
  if (version === undefined || rest.length === 0) return undefined;
  const parts = rest.map((part) => (part.includes("%") ? decodeURIComponent(part) : part));
  const [first = "", second, third, fourth, fifth] = parts;
  if (first !== "namespaces" || third === undefined || third === "status") {
    return { group, version, resource: first, name: second, subresource: third };
  }
  return { group, version, namespace: second, resource: third, name: fourth, subresource: fifth };
}

/** The group that a path is in, empty for the core group; `undefined` for a path of no group. */
export function groupOf(path: string): string | undefined {
  const [, root, group] = path.split("/");
  return root === "api" ? "" : root === "apis" ? group : undefined;
}
