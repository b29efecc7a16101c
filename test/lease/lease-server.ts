import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError, TransportError } from "../../src/kube/errors.ts";
import type { Lease } from "../../src/api/lease.ts";

interface LeasePatch {
  readonly metadata: {
    readonly uid?: string;
    readonly resourceVersion?: string;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly spec: Lease["spec"];
}

interface DeleteOptions {
  readonly mustExist?: boolean;
  readonly preconditions: LeasePatch["metadata"];
  readonly signal?: AbortSignal;
}

const SERVER = "https://local";

/**
 * A stand-in for an API server that keeps one Lease: a real one can be stopped, but its time cannot be. It takes writes
 * as a real one does, by uid and resourceVersion.
 */
export class LeaseServer {
  lease: Lease | undefined;
  /**
   * `refusing`: connections are refused. `hanging`: nothing is answered. `deaf`: requests are carried out and the
   * answer is lost. A number: it answers with this status.
   */
  state: "up" | "refusing" | "hanging" | "deaf" | number = "up";
  /** Which requests fare as {@link state} says; reads are answered where it is the writes. */
  failing: "all" | "writes" = "all";
  /** Requests that came, answered or not. */
  readonly seen: string[] = [];
  #revision = 1;

  readonly client = {
    transport: { server: SERVER },
    find: (_resource: unknown, _ref: unknown, options: { signal?: AbortSignal }) =>
      this.#serve("GET", options, () => this.lease),
    create: (_resource: unknown, body: LeasePatch, options: { signal?: AbortSignal }) =>
      this.#serve("POST", options, () => this.#store("uid-1", body)),
    patch: (_resource: unknown, _ref: unknown, { body }: { body: LeasePatch }, options: { signal?: AbortSignal }) =>
      this.#serve("PATCH", options, () => this.#store(this.#matching(body.metadata).metadata.uid, body)),
    delete: (_resource: unknown, _ref: unknown, { mustExist = false, preconditions, signal }: DeleteOptions) =>
      this.#serve("DELETE", signal === undefined ? {} : { signal }, () => {
        // As ApiClient has it: one that does not exist counts as deleted.
        if (this.lease === undefined && !mustExist) return;
        this.#matching(preconditions);
        this.lease = undefined;
      }),
  } as unknown as ApiClient;

  /** etcd is as it was when this is called, once the returned function is: restored from a backup. */
  backup(): () => void {
    const { lease } = this;
    return () => {
      this.lease = lease;
    };
  }

  /** Another client takes it. */
  takeOver(holderIdentity: string): void {
    if (this.lease === undefined) throw new Error("there is no Lease");
    this.#store(this.lease.metadata.uid, { metadata: {}, spec: { holderIdentity } });
  }

  async #serve<T>(method: string, { signal }: { signal?: AbortSignal }, work: () => T): Promise<T> {
    this.seen.push(method);
    signal?.throwIfAborted();
    const failure = (text: string): TransportError => new TransportError(`${method} lease`, SERVER, new Error(text));
    if (this.failing === "writes" && method === "GET") return work();
    if (typeof this.state === "number") throw new ApiError(`${method} lease`, this.state, {});
    if (this.state === "refusing") throw failure("connection refused");
    if (this.state === "hanging") return this.#never(signal);
    const answer = work();
    if (this.state === "deaf") throw failure("reset");
    return answer;
  }

  #never(signal: AbortSignal | undefined): Promise<never> {
    return new Promise((_resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason as Error));
    });
  }

  #matching({ uid, resourceVersion }: LeasePatch["metadata"]): Lease {
    const { lease } = this;
    if (lease === undefined) throw new ApiError("find lease", 404, {});
    if (lease.metadata.uid !== uid || lease.metadata.resourceVersion !== resourceVersion) {
      throw new ApiError("write lease", 409, {});
    }
    return lease;
  }

  #store(uid: string, { metadata, spec }: LeasePatch): Lease {
    const annotations = { ...this.lease?.metadata.annotations, ...metadata.annotations };
    const stored = {
      metadata: { name: "lease", uid, resourceVersion: String(this.#revision++), annotations },
      spec: { ...this.lease?.spec, ...spec },
    };
    this.lease = stored;
    return stored;
  }
}
