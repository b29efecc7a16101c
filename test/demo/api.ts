import { setTimeout as sleep } from "node:timers/promises";

import type { CustomResourceDefinition } from "../crd.ts";
import type { Status } from "../../src/api/meta.ts";
import type { ControlPlane, RequestOptions } from "../control-plane/control-plane.ts";
import { crdPath } from "./crds.ts";

/** What an API server answered. */
export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** The message of a Status, or what there is instead. */
export function messageOf({ status, body }: Answer): string {
  const message = (body as Partial<Status> | null)?.message;
  return message ?? `HTTP ${status} ${typeof body === "string" ? body.trim() : JSON.stringify(body)}`;
}

/**
 * Sends a request that must succeed.
 * @throws {Error} with what the API server said
 */
export async function call<T>(controlPlane: ControlPlane, path: string, options: RequestOptions = {}): Promise<T> {
  const answer = await controlPlane.request(path, options);
  if (answer.status >= 400)
    throw new Error(`Cannot ${options.method ?? "GET"} ${path}: ${answer.status}: ${messageOf(answer)}`);
  return answer.body as T;
}

export function readCrd(controlPlane: ControlPlane, plural: string): Promise<CustomResourceDefinition> {
  return call<CustomResourceDefinition>(controlPlane, crdPath(plural));
}

/** `namespace/name` of every object of a collection, sorted, read page by page. */
export async function listNames(controlPlane: ControlPlane, path: string): Promise<string[]> {
  const names: string[] = [];
  let next = "";
  do {
    const query = new URLSearchParams({ limit: "500", continue: next });
    const page = await call<{
      readonly metadata: { readonly continue?: string };
      readonly items: readonly { readonly metadata: { readonly namespace: string; readonly name: string } }[];
    }>(controlPlane, `${path}?${query.toString()}`);
    names.push(...page.items.map(({ metadata }) => `${metadata.namespace}/${metadata.name}`));
    next = page.metadata.continue ?? "";
  } while (next !== "");
  return names.sort();
}

/**
 * Repeats a request until the answer is as wanted: a change of a CRD takes a moment to reach the handler of its objects.
 * @throws {Error} with the last answer when the time is over
 */
export async function requestUntil(
  request: () => Promise<Answer>,
  isWanted: (answer: Answer) => boolean,
  signal: AbortSignal,
): Promise<Answer> {
  const deadline = performance.now() + 15_000;
  for (;;) {
    const answer = await request();
    if (isWanted(answer)) return answer;
    if (performance.now() > deadline)
      throw new Error(`The API server did not come round in time; its last answer: ${messageOf(answer)}`);
    await sleep(50, undefined, { signal });
  }
}
