import type { ApiClient } from "../kube/client.ts";
import type { ListedObject } from "../kube/listed-object.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { Tally } from "../migrator/rewrite/counts.ts";
import { rewriteAll } from "../migrator/rewrite-all.ts";
import { rewriteObject } from "../migrator/rewrite/rewrite.ts";
import type { ObjectOutcome, RewriteContext } from "../migrator/rewrite/rewrite-context.ts";
import type { RunContext } from "../migrator/run-context.ts";
import type { Witness } from "./witness.ts";

/** No resourceVersion is newer: an object that another client wrote since is verified as all others are. */
const NO_WATERMARK = "";

/** What a {@link verifyAll} takes besides the context. */
export interface VerifyAllOptions {
  readonly resource: ServedResource;
  /** One client for each API server, whose writes are fenced. */
  readonly writers: readonly ApiClient[];
  readonly witness: Witness;
}

/**
 * Goes once over all objects of a resource, and writes each of them as it is through one API server after the other. What is
 * current stays as it is; the witness has all others.
 * @returns what the objects came to, without those of the witness, and the resourceVersion of the list
 * @throws as `RewritePass.run()`.
 */
export async function verifyAll(
  context: RunContext,
  { resource, witness, writers }: VerifyAllOptions,
): Promise<{ readonly tally: Tally; readonly watermark: string }> {
  const tally = new Tally();
  let watermark = "";
  await rewriteAll(context, resource, {
    tally,
    rewrite: (writing, object) => throughEach(writers, { ...writing, write: witness.write }, object),
    onPage: async ({ point }) => {
      watermark = point.watermark;
    },
  });
  return { tally, watermark };
}

/** An object that is not current through one API server, or gone, or refused, is not tried through the next one. */
async function throughEach(
  writers: readonly ApiClient[],
  context: RewriteContext,
  object: ListedObject,
): Promise<ObjectOutcome> {
  let outcome: ObjectOutcome = { kind: "failed", reason: "there is no API server to write through" };
  for (const [index, { transport }] of writers.entries()) {
    if (index > 0) {
      await context.pacer.slot(context.waitSignal);
    }
    outcome = await rewriteObject({ ...context, transport, watermark: NO_WATERMARK }, object);
    if (outcome.kind !== "current") {
      return outcome;
    }
  }
  return outcome;
}
