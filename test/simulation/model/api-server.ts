import { errorAnswer, jsonAnswer, PathNotServed } from "./answers.ts";
import type { SimEtcd } from "./etcd.ts";
import type { ModelAnswer, ModelIo, ModelRequest, ServerClock } from "./types.ts";

/** What a {@link SimApiServer} is made of. */
export interface SimApiServerOptions {
  readonly etcd: SimEtcd;
  /** The host name, as the identity Lease has it. */
  readonly name: string;
  readonly clock: ServerClock;
  readonly io: ModelIo;
}

/** One kube-apiserver of a simulated cluster. */
export class SimApiServer {
  readonly #options: SimApiServerOptions;

  constructor(options: SimApiServerOptions) {
    this.#options = options;
  }

  /** Answers a request. It rejects only where the model itself is at fault. */
  async handle(request: ModelRequest): Promise<ModelAnswer> {
    const { clock } = this.#options;
    try {
      await Promise.resolve();
      if (request.path === "/version") return jsonAnswer(200, '{"gitVersion":"v1.36.3"}', clock.now());
      throw new PathNotServed();
    } catch (error) {
      return errorAnswer(error, clock.now());
    }
  }
}
