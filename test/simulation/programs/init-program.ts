import { SYSTEM_NAMESPACE } from "../../../src/api/migration.ts";
import { initialize, type InitResult } from "../../../src/initializer/initialize.ts";
import { Retrier } from "../../../src/retry/retrier.ts";
import { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import type { Program } from "./started-program.ts";
import { thrownText } from "./thrown-text.ts";

/** `ksvm init` in a process of its own. */
export class InitProgram implements Program {
  readonly process: SimProcess;
  #endText: string | undefined;
  #result: InitResult | undefined;
  readonly #interrupt = new AbortController();

  constructor(world: World, name: string) {
    this.process = new SimProcess(world.schedule, name);
    this.process.onCrash(() => (this.#endText ??= "crash"));
    void this.#begin(world);
  }

  get isAtRest(): boolean {
    return this.#endText !== undefined;
  }

  /** `done`, `crash`, or why it failed. */
  get endText(): string | undefined {
    return this.#endText;
  }

  /** `undefined` unless it is done. */
  get result(): InitResult | undefined {
    return this.#result;
  }

  interrupt(): void {
    this.#interrupt.abort();
  }

  async #begin(world: World): Promise<void> {
    const { clock } = this.process;
    const retrier = new Retrier({ clock, random: Math.random });
    const context = { client: world.cluster.clientOf(this.process), clock, retrier, signal: this.#interrupt.signal };
    try {
      this.#result = await initialize(context, { namespace: SYSTEM_NAMESPACE, replace: false });
      this.#endText ??= "done";
    } catch (error) {
      this.#endText ??= thrownText(world, this.process.name, error);
    }
    world.tell(this.process.name, `ended: ${this.#endText}`);
  }
}
