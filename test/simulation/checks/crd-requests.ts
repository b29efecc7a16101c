import { CRDS } from "../world/user-actions.ts";
import type { World } from "../world/world.ts";

interface Requests {
  underWay: number;
  /** In simulated milliseconds. */
  failedAt: number;
}

/** The requests of programs for CRDs: without an answer to them a freeze cannot be taken off. */
export class CrdRequests {
  readonly #requests = new Map<string, Requests>();

  constructor({ cluster, schedule }: World) {
    const { onExchange } = cluster;
    cluster.onExchange = (request, process) => {
      const ended = onExchange(request, process);
      // A run that proves its freeze is denied its dry-runs all the time.
      const isNeeded = request.path.startsWith(CRDS) && !request.query.has("watch") && !request.query.has("dryRun");
      if (!isNeeded) return ended;
      const requests = this.#of(process.name);
      requests.underWay++;
      let isOver = false;
      return (answer) => {
        ended(answer);
        if (isOver) return;
        isOver = true;
        requests.underWay--;
        if (answer === undefined || answer.status >= 400) requests.failedAt = schedule.now;
      };
    };
  }

  /** Whether a process waits for an answer. */
  areUnderWay(process: string): boolean {
    return this.#of(process).underWay > 0;
  }

  /** When a request of a process failed last, in simulated milliseconds; the distant past where none did. */
  failedAt(process: string): number {
    return this.#of(process).failedAt;
  }

  #of(process: string): Requests {
    const requests = this.#requests.get(process) ?? { underWay: 0, failedAt: Number.NEGATIVE_INFINITY };
    this.#requests.set(process, requests);
    return requests;
  }
}
