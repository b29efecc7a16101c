import { forbidden, Refusal } from "./answers.ts";
import type { ResourcePath } from "./paths.ts";

/** What a user asks to do. */
export interface AccessRequest {
  readonly user: string;
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string | undefined;
  readonly namespace?: string | undefined;
  readonly name?: string | undefined;
}

/** What users may not do: everything that matches all fields that are named. What no rule matches is allowed. */
export interface DenyRule {
  readonly user?: string;
  /** How the names of the users begin that it is about. */
  readonly userPrefix?: string;
  readonly verb?: string;
  readonly group?: string;
  readonly resource?: string;
  readonly subresource?: string;
  readonly namespace?: string;
  /** A path that names no resource, such as `/metrics`. */
  readonly path?: string;
}

/** @throws {Refusal} 403 in the words of the authorizer */
export function assertAllowed(rules: readonly DenyRule[], request: AccessRequest): void {
  if (rules.length === 0 || isAllowed(rules, request)) return;
  const { group, name = "", namespace, resource, subresource, user, verb } = request;
  const what = JSON.stringify(subresource === undefined ? resource : `${resource}/${subresource}`);
  const where = namespace === undefined ? "at the cluster scope" : `in the namespace "${namespace}"`;
  const why = `User ${JSON.stringify(user)} cannot ${verb} resource ${what} in API group "${group}" ${where}`;
  throw forbidden({ group, resource }, name, why);
}

/** @throws {Refusal} 403 in the words of the authorizer */
export function assertPathAllowed(rules: readonly DenyRule[], user: string, path: string): void {
  if (isPathAllowed(rules, user, path)) return;
  const message = `forbidden: User ${JSON.stringify(user)} cannot get path ${JSON.stringify(path)}`;
  throw new Refusal({ code: 403, reason: "Forbidden", details: {}, message });
}

/** Whether no rule denies that a user gets a path that names no resource. */
export function isPathAllowed(rules: readonly DenyRule[], user: string, path: string): boolean {
  return !rules.some(
    (rule) => rule.path === path && (rule.user ?? user) === user && user.startsWith(rule.userPrefix ?? ""),
  );
}

/** Whether no rule denies it. */
export function isAllowed(rules: readonly DenyRule[], request: AccessRequest): boolean {
  return !rules.some(
    ({ group, namespace, path, resource, subresource, user, userPrefix = "", verb }) =>
      path === undefined &&
      (user ?? request.user) === request.user &&
      request.user.startsWith(userPrefix) &&
      (verb ?? request.verb) === request.verb &&
      (group ?? request.group) === request.group &&
      (resource ?? request.resource) === request.resource &&
      (subresource ?? request.subresource) === request.subresource &&
      (namespace ?? request.namespace) === request.namespace,
  );
}

const VERBS: Readonly<Record<string, string>> = { POST: "create", PUT: "update", PATCH: "patch", DELETE: "delete" };

/** The verb of a request, as RBAC has it. */
export function verbOf(method: string, { name }: ResourcePath, isWatch: boolean): string {
  if (method !== "GET") return VERBS[method] ?? method.toLowerCase();
  if (name !== undefined) return "get";
  return isWatch ? "watch" : "list";
}
