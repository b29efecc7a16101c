import type { Mutation } from "./mutation.ts";

const ELECTION = "lease/leader-election.ts";
const RECORD = "controller/migration-record.ts";
const SWEEP_WAITS = {
  file: "controller/migration-controller.ts",
  from: "if (atWork.some(({ isReencryption }) => !isReencryption)) {",
  to: "if (atWork.length > 0) {",
} as const;
const STATUS = "controller/migration-status.ts";
const CONTROLLER = "controller/migration-controller.ts";

/** What is wrong about replicas of the controller, and about what the one that leads does. */
export const CONTROLLERS: readonly Mutation[] = [
  {
    name: "a leader goes on after its Lease is lost",
    edits: [
      {
        file: ELECTION,
        from: "if (!ended.aborted && (this.#isHeldByAnother() || !this.isLeading)) {",
        to: "if (ended.aborted && this.#isHeldByAnother()) {",
      },
      {
        file: ELECTION,
        from: "return this.#confirmed !== undefined && this.#remainingMs() > 0;",
        to: "return this.#confirmed !== undefined;",
      },
    ],
    found: { seed: 86, breaks: "leader fence: a replica writes as the leader, and another one holds the Lease" },
  },
  {
    name: "a leader looks at its monotonic clock alone",
    edits: [
      {
        file: ELECTION,
        from: "const ageMs = Math.max(clock.monotonic() - monotonic, clock.now() - now);",
        to: "void now; const ageMs = clock.monotonic() - monotonic;",
      },
    ],
    found: { seed: 506, breaks: "leader fence: a replica writes as the leader, and another one holds the Lease" },
  },
  {
    name: "a replica takes the Lease of the leader over after a second",
    edits: [
      {
        file: ELECTION,
        from: "return this.#options.clock.monotonic() - at >= durationMs;",
        to: "void durationMs; return this.#options.clock.monotonic() - at >= 1_000;",
      },
    ],
    found: { seed: 35, breaks: "Lease: a replica takes that of a leader which lives" },
  },
  {
    name: "a leader that lost its Lease never competes again",
    edits: [
      {
        file: ELECTION,
        from: "while (await this.#acquire(signal)) {",
        to: "if (await this.#acquire(signal)) {",
      },
    ],
    found: { seed: 45, breaks: "liveness: storedVersions of widgets.sim.example.com is [v1alpha1 v1]" },
  },
  {
    name: "sweep without looking whether the owner lives",
    edits: [
      {
        file: "controller/orphan-sweep.ts",
        from: "} else if (await isRunDead(options, ref)) {",
        to: "} else if (isRunDead !== undefined) {",
      },
    ],
    found: { seed: 443, breaks: "freeze: a replica lifts that of a run which holds its Lease" },
  },
  {
    name: "the sweep takes every run for dead",
    edits: [
      { file: CONTROLLER, from: "isBusy: (crdName) => this.#isBusy(crdName),", to: "isBusy: () => false," },
      { file: CONTROLLER, from: "isDead: (holder) => this.#jobs.isDead(holder),", to: "isDead: () => true," },
    ],
    found: { seed: 19, breaks: "liveness: a migration is Pending" },
  },
  {
    name: "no freeze is swept",
    edits: [
      {
        file: "controller/orphan-sweep.ts",
        from: "if (!options.isBusy(orphan.crdName)) {",
        to: "if (options.isBusy(orphan.crdName) && !options.isBusy(orphan.crdName)) {",
      },
    ],
    found: { seed: 1_818, breaks: "liveness: a migration is Waiting" },
  },
  {
    name: "no policy is swept whose freeze is lifted already",
    edits: [
      {
        file: "controller/orphan-sweep.ts",
        from: "[...frozen, ...policies, ...bindings]",
        to: "[...frozen, ...[...policies, ...bindings].slice(0, 0)]",
      },
    ],
    found: { seed: 1_818, breaks: "liveness: a migration is Waiting" },
  },
  {
    name: "call a migration Succeeded although objects failed",
    edits: [{ file: STATUS, from: `type: "Failed",\n        reason: "ObjectsNotMigrated",`, to: `type: "Succeeded",` }],
    found: { seed: 86, breaks: "migrated: a migration is Succeeded, and it names no CRD that was proven" },
  },
  {
    name: "call a migration Succeeded before the prune",
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "const pruned = this.#tally.counts.failed === 0 ? await this.#prune(expected, monitor) : undefined;",
        to: "void monitor; const pruned = { storedVersions: [expected.storageVersion], crd: `${crd.metadata.uid}/${crd.metadata.generation}` }; void this.#prune;",
      },
    ],
    found: { seed: 1, breaks: "told: it says that storedVersions is the storage version, which it never was" },
  },
  {
    name: "write how a migration ended once more",
    edits: [
      {
        file: RECORD,
        from: "  #assertUnfinished(): void {\n    if (isFinished(this.#current)) {",
        to: "  #assertUnfinished(): void {\n    if (!isFinished(this.#current) && isFinished(this.#current)) {",
      },
    ],
    survives:
      "not in 500 clusters with controllers: a user has to say how a migration ended in the milliseconds before the leader does",
  },
  {
    name: "write a migration without preconditions",
    edits: [
      {
        file: RECORD,
        from: "const metadata = { ...(body as { metadata?: object }).metadata, uid, resourceVersion };",
        to: "void uid; void resourceVersion; const metadata = { ...(body as { metadata?: object }).metadata };",
      },
    ],
    survives:
      "etcd has to be restored between a run and its result: regressions/migration-that-was-edited-after-a-restore.json breaks with it",
  },
  {
    name: "write how a migration ended although it went back in time",
    edits: [{ file: RECORD, from: "    if (hasGoneBack) {", to: "    if (hasGoneBack && isFinished(found)) {" }],
    survives:
      "no seed of the first few hundred restores etcd at that moment; regressions/restore-before-succeeded.json does",
  },
  {
    name: "the sweep waits for each run on a CRD",
    edits: [SWEEP_WAITS],
    survives:
      "in the worlds of seeds nothing says by when such a freeze has to be gone: regressions/freeze-of-a-dead-command-beside-a-reencryption.json does",
  },
  {
    name: "the sweep waits for each run on a CRD, and one that freezes nothing takes no freeze of a dead run off",
    edits: [
      SWEEP_WAITS,
      {
        file: "migrator/migrate-built-in.ts",
        from: "await unfrozen.first?.({ ...watched, client: held, renew }, lease.key);",
        to: "void [held, renew];",
      },
    ],
    survives:
      "in the worlds of seeds nothing says by when such a freeze has to be gone: regressions/freeze-of-a-dead-leader-beside-a-reencryption.json does",
  },
  {
    name: "a migration that went back in time shows it by its resourceVersion alone",
    edits: [
      {
        file: "controller/earlier-migration.ts",
        from: "|| doneOf(status?.counts) < this.#done;",
        to: "|| doneOf(status?.counts) < 0;",
      },
    ],
    survives:
      "etcd has to be restored with --bump-revision at that moment, and another client to write the migration: regressions/migration-that-was-edited-after-a-restore.json has it so",
  },
  {
    name: "write how a migration ended although a look, and the Lease of the run, have found out that it went back in time",
    edits: [
      {
        file: RECORD,
        from: "      this.#assertNotUndone();\n      try {",
        to: "      try {",
      },
      { file: "lease/run-lease.ts", from: "  cleanup.check(() => lease.assertNotLost());\n", to: "" },
    ],
    survives: "no seed restores etcd at that moment; regressions/restore-during-the-cleanup.json does",
  },
  {
    name: "no other migration begins when one has ended",
    edits: [
      { file: CONTROLLER, from: "onEnd: () => this.#changed(),", to: "onEnd: () => undefined," },
      {
        file: "controller/slots.ts",
        from: "        this.#taken--;\n        this.dispatch();",
        to: "        this.#taken--;",
      },
    ],
    survives: "each change that the feed tells of begins the next one",
  },
  {
    name: "a migration that waits is never tried again",
    edits: [
      {
        file: "controller/migration-run.ts",
        from: "await clock.sleep(delayMs, signal);",
        to: "await clock.sleep(delayMs + 86_400_000, signal);",
      },
    ],
    found: { seed: 19, breaks: "liveness: a migration is Pending" },
  },
  {
    name: "a migration that is waited for fails at once",
    edits: [
      {
        file: "controller/run-verdict.ts",
        from: "type: spentMs < waitMs ?",
        to: "type: spentMs < waitMs && spentMs < 0 ?",
      },
    ],
    survives: "not in 500 clusters with controllers",
  },
  {
    name: "the feed of migrations is not listed again after a gap",
    edits: [
      {
        file: "migrations/migration-feed.ts",
        from: "      this.#pulse.beat();\n      try {\n        // A follower",
        to: "      this.#pulse.beat();\n      if (this.#told !== undefined && !this.#isListWanted && this.#round !== undefined && this.#hasListed) return; this.#hasListed = true;\n      try {\n        // A follower",
      },
      {
        file: "migrations/migration-feed.ts",
        from: "  #isListWanted = false;\n\n",
        to: "  #isListWanted = false;\n  #hasListed = false;\n\n",
      },
    ],
    found: { seed: 96, breaks: "liveness: a migration is Running" },
  },
  {
    name: "do not say for which spec of the CRD a migration was proven",
    edits: [
      {
        file: STATUS,
        from: `result.crd === undefined || result.outcome !== "migrated" ? {} : { crd: result.crd };`,
        to: `result.crd === undefined || result.outcome !== "migrated" ? {} : {};`,
      },
    ],
    found: { seed: 7, breaks: "migrated: a migration is Succeeded, and it names no CRD that was proven" },
  },
  {
    name: "replicas ask for the Lease of the leader ten times as often",
    edits: [
      {
        file: ELECTION,
        from: "this.#retryPeriodMs = options.retryPeriodMs ?? 2_000;",
        to: "this.#retryPeriodMs = options.retryPeriodMs ?? 200;",
      },
    ],
    found: { seed: 96, breaks: "controllers: idle replicas send more than 90 requests in a minute" },
  },
];
