/** The arguments of every container, wherever a manifest nests it. */
export function* argumentsIn(value: unknown): Generator<readonly string[]> {
  if (Array.isArray(value)) {
    for (const item of value) yield* argumentsIn(item);
  } else if (typeof value === "object" && value !== null) {
    if ("image" in value && "args" in value) yield value.args as readonly string[];
    for (const item of Object.values(value)) yield* argumentsIn(item);
  }
}
