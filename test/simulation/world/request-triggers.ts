import type { ModelRequest } from "../model/types.ts";
import { type RequestKind, requestKindOf, type UserResource } from "./request-kinds.ts";

/** A moment of a run: when ksvm sends its nth request of a kind, counted over all of its processes. */
export interface RequestMoment {
  readonly request: RequestKind;
  /** From 1. */
  readonly nth: number;
  /** So many milliseconds after that. @default at once, before the request arrives */
  readonly afterMs?: number;
  /** So many milliseconds the request is on its way. @default as any other */
  readonly holdMs?: number;
}

interface Armed extends RequestMoment {
  readonly run: () => void;
}

/** Has things happen when ksvm sends a request, and not at some time: then they meet what they are to disturb. */
export class RequestTriggers {
  readonly #resources: readonly UserResource[];
  readonly #in: (ms: number, run: () => void) => void;
  readonly #counts = new Map<RequestKind, number>();
  #armed: Armed[] = [];

  /**
   * @param resources that users have objects of
   * @param later calls something after so many milliseconds
   */
  constructor(resources: readonly UserResource[], later: (ms: number, run: () => void) => void) {
    this.#resources = resources;
    this.#in = later;
  }

  /** Has `run` called at that moment, once. */
  when(moment: RequestMoment, run: () => void): void {
    this.#armed.push({ ...moment, run });
  }

  /** Nothing that has not happened so far happens any more. */
  disarm(): void {
    this.#armed = [];
  }

  /** Told of each request, when it is sent. @returns how long it is held on its way, in milliseconds */
  sent(request: ModelRequest): number {
    if (this.#armed.length === 0 || !request.user.startsWith("ksvm")) return 0;
    const kind = requestKindOf(request, this.#resources);
    if (kind === undefined) return 0;
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    const due = this.#armed.filter((armed) => armed.request === kind && armed.nth === count);
    if (due.length === 0) return 0;
    this.#armed = this.#armed.filter((armed) => !due.includes(armed));
    for (const { afterMs = 0, run } of due) this.#in(afterMs, run);
    return Math.max(...due.map(({ holdMs = 0 }) => holdMs));
  }
}
