import type { CustomResourceDefinition } from "../api/crd.ts";
import type { ObjectMeta } from "../api/meta.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { failureKindOf } from "../kube/failure.ts";
import { CRDS } from "../kube/resources.ts";
import { noOpWrite } from "./no-op-write.ts";
import { crdResourceOf } from "./request-resource.ts";
import type { RunContext } from "./run-context.ts";
import type { WaitingForOthers } from "./start-again.ts";

const POLL_MS = 2_000;

/**
 * Waits, without a freeze, until what the run got stuck on works again: a list, which calls the conversion webhook, and
 * a dry-run write of the object that got stuck, which calls the admission webhooks.
 * @throws {KsvmError} RetryBudgetExceeded after the time that is left, with the last error.
 */
export async function waitForOthers(context: RunContext, crdName: string, waiting: WaitingForOthers): Promise<void> {
  const { clock, emit, signal } = context;
  const { budgetMs, webhook } = waiting;
  const deadline = clock.monotonic() + budgetMs;
  emit({ type: "waiting", reason: waiting.message, budgetMs, ...(webhook === undefined ? {} : { webhook }) });
  for (;;) {
    const failure = await probe(context, crdName, waiting.object);
    if (failure === undefined) {
      return;
    }
    if (clock.monotonic() >= deadline) {
      const text = `Cannot go on with "${crdName}": still failing after the freeze was lifted to wait: ${messageOf(failure)}`;
      throw new KsvmError("RetryBudgetExceeded", text, { cause: failure });
    }
    await clock.sleep(POLL_MS, signal);
  }
}

/** The transient failure that still stands in the way; any other outcome is for the next attempt to judge. */
async function probe({ client, signal }: RunContext, crdName: string, stuck: ObjectMeta | undefined): Promise<unknown> {
  try {
    const crd = await client.get<CustomResourceDefinition>(CRDS, { name: crdName }, { signal });
    const resource = crdResourceOf(crd);
    const page = await client.listMetadata(resource, { limit: 1, signal });
    const object = stuck ?? page.items[0]?.metadata;
    if (object !== undefined) {
      const kind = crd.spec.names.kind;
      await noOpWrite(client.transport, { ...resource, kind }, object, { dryRun: true, signal });
    }
    return undefined;
  } catch (error) {
    signal.throwIfAborted();
    return failureKindOf(error) === "transient" ? error : undefined;
  }
}
