/** A change of the code that makes it wrong. */
export interface Mutation {
  readonly name: string;
  /** Below `src/`. */
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** What the simulation has to find: each takes one safeguard away. */
export const MUTATIONS: readonly Mutation[] = [
  {
    name: "skip the settle wait",
    file: "apiservers/settle-wait.ts",
    from: "  await new Settling(context, options).untilSettled();",
    to: "  void Settling; void context; void options;",
  },
  {
    name: "settle for a tenth of the time",
    file: "apiservers/settle.ts",
    from: "const waitMs = API_TIME_RESOLUTION_MS + settleMs;",
    to: "const waitMs = settleMs / 10;",
  },
  {
    name: "believe the stamp of any clock",
    file: "apiservers/settle.ts",
    from: "const believedUntil = Math.min(serverNow, localNow) - waitMs - STAMP_MARGIN_MS;",
    to: "const believedUntil = Math.max(serverNow, localNow) - waitMs;",
  },
  {
    name: "do not prove again before the prune",
    file: "migrator/crd-run.ts",
    from: "proveAgain: () => this.#evidence.repeat(() => readCrd(this.#context, this.#crdName)),",
    to: "proveAgain: async () => undefined,",
  },
  {
    name: "believe one API server for all",
    file: "apiservers/ask-all.ts",
    from: "(apiServers.clients ?? []).map(",
    to: "(apiServers.clients ?? []).slice(0, 1).map(",
  },
  {
    name: "prune although objects failed",
    file: "migrator/crd-run.ts",
    from: "const pruned = this.#tally.counts.failed === 0 ? ",
    to: "const pruned = this.#tally.counts.failed >= 0 ? ",
  },
  {
    name: "prune without a precondition",
    file: "migrator/prune.ts",
    from: "const body = { metadata: { uid, resourceVersion },",
    to: "void resourceVersion; const body = { metadata: { uid },",
  },
  {
    name: "do not freeze",
    file: "freeze/freeze.ts",
    from: "return { [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: formatOwner(owner) };",
    to: "return { [OWNER_ANNOTATION]: formatOwner(owner) };",
  },
];
