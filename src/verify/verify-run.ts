import { storageVersionHashOf, storageVersionOf } from "../api/crd.ts";
import { resourceNameOf } from "../api/migration.ts";
import type { ApiServers } from "../apiservers/api-servers.ts";
import { ServerRestarts } from "../apiservers/server-restarts.ts";
import { ApiClient } from "../kube/client.ts";
import type { Fence } from "../kube/transport-options.ts";
import type { ServedResource } from "../resources/migratable.ts";
import { readCrd } from "../resources/read-crd.ts";
import { StartAgain } from "../retry/start-again.ts";
import { BuiltInEvidence } from "../migrator/built-in-evidence.ts";
import type { Foundation } from "../migrator/foundation.ts";
import { type UnfrozenAttempt, whileListed } from "../migrator/listed-storage.ts";
import type { RunContext } from "../migrator/run-context.ts";
import { shownStorageOf } from "../migrator/shown-storage.ts";
import { type ShownOn, type Verification, type VerificationCounts, verdictOf } from "./verification.ts";
import { verifyAll } from "./verify-pass.ts";
import { Witness } from "./witness.ts";

type StoredAs = Pick<Verification, "crd" | "storageVersion" | "storageVersionHash">;

/** The verification of one resource. It rests on what a run rests on, before its first write and again at its end. */
export class VerifyRun {
  readonly #resource: ServedResource;
  readonly #crdName: string | undefined;
  readonly #restarts = new ServerRestarts();
  readonly #witness: Witness;

  /** @param crdName the CRD of a custom resource */
  constructor({ emit }: Pick<RunContext, "emit">, resource: ServedResource, crdName: string | undefined) {
    this.#resource = resource;
    this.#crdName = crdName;
    this.#witness = new Witness((found) => emit({ type: "notCurrent", ...found }));
  }

  /**
   * One attempt, which begins at the first object.
   * @throws {KsvmError} NotConverged where the API servers disagree; {StartAgain} where what it rests on did not last; as `ListedStorage.passed()`.
   */
  attempt(context: RunContext, fence: Fence): Promise<Verification> {
    const writes = { resource: this.#resource, crdName: this.#crdName, fence };
    // What is not current is written in the storage version.
    return whileListed(context, writes, (...fenced) => this.#attempt(...fenced));
  }

  async #attempt(context: RunContext, { fence, listed, resource }: UnfrozenAttempt): Promise<Verification> {
    const evidence = new BuiltInEvidence(context, { resource, crdName: this.#crdName, restarts: this.#restarts });
    const foundation = await evidence.prove();
    await listed?.look(foundation.crd);
    const storedAs = await this.#storedAs(context, foundation);
    const [writers, apiServers] = writersOf(context, evidence.apiServers, fence);
    try {
      const { tally, watermark } = await verifyAll(context, { resource, writers, witness: this.#witness });
      await evidence.repeat();
      await listed?.look();
      const { current, failed, gone } = tally.counts;
      const counts: VerificationCounts = { current, changed: this.#witness.count, gone, notShown: failed };
      return {
        resource: resourceNameOf(resource),
        outcome: verdictOf(counts),
        counts,
        apiServers,
        watermark,
        ...storedAs,
        ...shownStorageOf(context.encryption?.found, this.#crdName),
        changed: this.#witness.named,
        notShown: tally.failures,
      };
    } finally {
      await Promise.all(writers.filter((one) => one !== context.client).map(({ transport }) => transport.close()));
    }
  }

  /** Nothing is kept from one attempt to the next but what the witness has seen, which stands. */
  forget(): void {}

  /**
   * In what all objects are to be stored. Should all API servers be behind the CRD, each would find the old version current.
   * @throws {StartAgain} where they are.
   */
  async #storedAs(context: RunContext, { crd: crdKey, hash }: Foundation): Promise<StoredAs> {
    if (this.#crdName === undefined) {
      return { storageVersionHash: hash };
    }
    const crd = await readCrd(context, this.#crdName);
    const { group, names, versions } = crd.spec;
    const storageVersion = storageVersionOf(crd);
    const isServed = versions.some(({ name, served }) => name === storageVersion && served);
    // An API server shows no hash for a storage version that is not served.
    const expected = isServed ? storageVersionHashOf(group, storageVersion, names.kind) : "";
    if (hash !== expected) {
      const text = `Cannot verify "${this.#crdName}": the API servers show storageVersionHash "${hash}", and not "${expected}"`;
      throw new StartAgain("NotConverged", `${text} of storage version "${storageVersion}"`);
    }
    return { storageVersion, crd: crdKey };
  }
}

/** Clients for each API server by itself, or the one of the address that there is. Those besides `client` are to be closed. */
function writersOf(
  { client }: RunContext,
  apiServers: ApiServers | undefined,
  fence: Fence,
): [writers: readonly ApiClient[], shownOn: ShownOn] {
  const { server } = client.transport;
  const known = apiServers?.clients?.length ?? 0;
  const all = Math.max(known, apiServers?.identities?.length ?? 0);
  if (apiServers?.mode !== "each") {
    // A write cannot be pinned to one of several API servers behind an address: see `PinnedTransport`.
    return [[client], { servers: [server], ...(all === 0 ? {} : { of: all }), isShared: true }];
  }
  const writers = apiServers.clients.map(({ transport }) =>
    transport.server === server
      ? client
      : new ApiClient(client.transport.another({ server: transport.server })).fencedBy(fence),
  );
  return [writers, { servers: writers.map(({ transport }) => transport.server), of: all }];
}
