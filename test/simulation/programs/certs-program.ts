import { ensureCertificates } from "../../../src/certs/ensure.ts";
import { SimProcess } from "../world/sim-process.ts";
import type { World } from "../world/world.ts";
import { certificateTools } from "./certificate-tools.ts";
import type { Program } from "./started-program.ts";
import { thrownText } from "./thrown-text.ts";

/** `ksvm certs ensure`, or `ksvm certs rotate --now`, in a process of its own. */
export class CertsProgram implements Program {
  readonly process: SimProcess;
  #endText: string | undefined;
  readonly #interrupt = new AbortController();

  constructor(world: World, { name, rotates }: { readonly name: string; readonly rotates: boolean }) {
    this.process = new SimProcess(world.schedule, name);
    this.process.onCrash(() => (this.#endText ??= "crash"));
    world.schedule.untilEnd(() => this.#interrupt.abort());
    void this.#begin(world, rotates);
  }

  get isAtRest(): boolean {
    return this.#endText !== undefined;
  }

  /** `done`, `crash`, or why it failed. */
  get endText(): string | undefined {
    return this.#endText;
  }

  interrupt(): void {
    this.#interrupt.abort();
  }

  async #begin(world: World, rotates: boolean): Promise<void> {
    this.#endText ??= await this.#run(world, rotates);
    world.tell(this.process.name, `ended: ${this.#endText}`);
  }

  async #run(world: World, rotates: boolean): Promise<string> {
    const { signal } = this.#interrupt;
    const client = world.cluster.clientOf(this.process);
    const tools = certificateTools(world, this.process, { client, signal });
    try {
      const { state } = await ensureCertificates({ ...tools, rotateNow: rotates, wait: rotates });
      return state === "current" || !rotates ? "done" : state;
    } catch (error) {
      return thrownText(world, this.process.name, error);
    } finally {
      await tools.close();
    }
  }
}
