/**
 * What sort of violation a text tells of: the text up to its first colon. What follows names objects and numbers, which another
 * plan has others of. Of liveness the next words count too: a run that does not end is another fault than one that fails.
 */
export function violationKind(violation: string): string {
  const [kind = "", rest = ""] = violation.split(/:(.*)/s);
  if (kind !== "liveness") return kind;
  return `${kind}: ${rest.trim().split(" ").slice(0, 4).join(" ")}`;
}
