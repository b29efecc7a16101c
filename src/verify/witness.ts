import { ApiError } from "../kube/errors.ts";
import { failedWebhookOf, isAdmissionDenial } from "../kube/failure.ts";
import type { ListedObject } from "../kube/listed-object.ts";
import { namedObjectOf } from "../kube/named-object.ts";
import type { NotCurrent } from "../migrator/events.ts";
import { MAX_NAMED_OBJECTS } from "../migrator/rewrite/counts.ts";
import { noOpWrite } from "../migrator/rewrite/no-op-write.ts";

/** So many writes without an answer are kept in mind, each with some hundred bytes. What is beyond counts as changed at once. */
const MAX_UNANSWERED = 100_000;

/**
 * Sends the writes of a verification and keeps what they show. One for all attempts of a run: what an attempt changed, the
 * next one finds current.
 */
export class Witness {
  /** Objects that were not current. */
  count = 0;
  /** The first {@link MAX_NAMED_OBJECTS} of them. */
  readonly named: NotCurrent[] = [];
  /** The resourceVersions that writes without an answer were sent with, by the uid of the object. */
  readonly #unanswered = new Map<string, string>();
  readonly #tell: (found: NotCurrent) => void;

  /** @param tell told of each of those that are named */
  constructor(tell: (found: NotCurrent) => void) {
    this.#tell = tell;
  }

  /** {@link noOpWrite}, and what its answer shows. */
  readonly write: typeof noOpWrite = async (transport, resource, object, options) => {
    if (options.dryRun === true) {
      return noOpWrite(transport, resource, object, options);
    }
    const sent = object as ListedObject;
    let isSent = false;
    const onSend = (): void => void (isSent = true);
    try {
      const written = await noOpWrite(transport, resource, object, { ...options, onSend });
      this.#answered(transport.server, sent, written);
      return written;
    } catch (error) {
      if (isSent && mayHaveWritten(error)) {
        this.#lost(transport.server, sent);
      }
      throw error;
    }
  };

  #answered(server: string, sent: ListedObject, written: ListedObject): void {
    const lostAt = this.#unanswered.get(sent.uid);
    this.#unanswered.delete(sent.uid);
    if (written.resourceVersion !== sent.resourceVersion) {
      this.#found({ ...namedObjectOf(sent), server, ...changeIn(sent, written) });
    } else if (lostAt !== undefined && lostAt !== sent.resourceVersion) {
      // Either that write was stored, which shows that the object was not current, or another client wrote it.
      this.#found({ ...namedObjectOf(sent), server, doubt: "no answer" });
    }
  }

  /** The first one counts: what was stored by it shows in the resourceVersion from then on. */
  #lost(server: string, sent: ListedObject): void {
    if (this.#unanswered.has(sent.uid)) {
      return;
    }
    if (this.#unanswered.size >= MAX_UNANSWERED) {
      this.#found({ ...namedObjectOf(sent), server, doubt: "no answer" });
    } else {
      this.#unanswered.set(sent.uid, sent.resourceVersion);
    }
  }

  #found(found: NotCurrent): void {
    this.count++;
    if (this.named.length < MAX_NAMED_OBJECTS) {
      this.named.push(found);
      this.#tell(found);
    }
  }
}

/** What a write changed of an object besides its encoding. */
function changeIn(sent: ListedObject, written: ListedObject): Pick<NotCurrent, "doubt"> {
  if (written.generation === sent.generation && sent.hasManagedFields && !written.hasManagedFields) {
    return { doubt: "managedFields emptied" };
  }
  const isChanged = written.generation !== sent.generation || written.digest !== sent.digest;
  return isChanged ? { doubt: "changed by admission" } : {};
}

/** Whether a write that failed may have been stored all the same: no answer came, or one that does not tell. */
export function mayHaveWritten(error: unknown): boolean {
  const isRefused = error instanceof ApiError && (error.status < 500 || failedWebhookOf(error) !== undefined);
  return !isRefused && !isAdmissionDenial(error);
}
