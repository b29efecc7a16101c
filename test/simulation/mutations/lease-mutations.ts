import type { Mutation } from "./mutation.ts";

const HELD = "lease/held-lease.ts";
const ACQUIRE = "lease/lease-acquire.ts";

const BACK_IN_TIME = {
  file: HELD,
  from: "} else if (this.#hasGoneBack(current)) {",
  to: "} else if (isNewer('1', '1')) {",
} as const;
const OF_ANY_TIME = { file: HELD, from: "|| !this.#renewTimes.has(spec?.renewTime)", to: "|| spec === null" } as const;
const RESTORED = {
  file: "migrator/restored-objects.ts",
  from: "if (why !== undefined) {",
  to: "if (why === null) {",
} as const;

/** A leader whose Lease went back in time, or is gone, goes on. */
export const LEADS_ON = {
  file: "lease/leader-election.ts",
  from: "if (this.isLeading && this.#hasGoneBack(found)) {",
  to: "if (this.isLeading && this.#hasGoneBack(found) && this.#observed === undefined) {",
} as const;
const NOT_CONFIRMED = {
  file: "trigger/apply.ts",
  from: 'if (decision.cause === "completed" || mayRestOnMigrations(situation)) {',
  to: 'if ((decision.cause === "completed" || mayRestOnMigrations(situation)) && context.client === undefined) {',
} as const;

/** What is wrong about the Lease of a run. */
export const LEASES: readonly Mutation[] = [
  {
    name: "a list of the identity Leases from before what was seen counts for nothing",
    survives:
      "etcd has to be restored right before a re-encryption, and an API server has to come and go during it: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/server-arrivals.ts",
        from: 'if (this.#seen !== "" && isNewer(seenBefore, resourceVersion)) {',
        to: "if (isNewer(seenBefore, seenBefore) || resourceVersion === seenBefore + 0) {",
      },
    ],
  },
  {
    name: "a leader goes on with what it knew before a restore of etcd",
    survives:
      "etcd has to be restored in the moment in which a migration succeeds: regressions/restore-that-a-leader-outlives.json does that",
    edits: [LEADS_ON, NOT_CONFIRMED],
  },
  {
    name: "a run goes on from a checkpoint whatever became of what was rewritten before it",
    survives:
      "Leases have to be in another etcd than the one that is restored: regressions/checkpoint-that-a-restore-left.json has them there",
    edits: [{ file: "migrator/restored-objects.ts", from: "new SeenState(seen))", to: "new SeenState(void seen))" }],
  },
  {
    name: "a run of a former leader writes as long as it holds its own Lease",
    found: { seed: 594_757, breaks: "leader fence: a replica writes as the leader, and another one holds the Lease" },
    edits: [{ file: HELD, from: "this.#options.assertLeading?.();", to: "" }],
  },
  {
    name: "a run looks for its last write alone",
    survives:
      "Leases have to be in another etcd than the one that is restored, with --bump-revision: regressions/restore-that-raises-revisions-during-a-run.json has it so",
    edits: [
      {
        file: "migrator/rewrite/seen-state.ts",
        from: "[this.#before, this.#first].filter",
        to: "[now.written].filter",
      },
    ],
  },
  {
    name: "a completion rests on what the leader was told of its migrations",
    survives:
      "etcd has to be restored between a success and its StorageState, and the Lease of the leader has to be held: a plan in regressions/ finds it",
    edits: [NOT_CONFIRMED],
  },
  {
    name: "write although the Lease could not be renewed",
    found: { seed: 1_409, breaks: "policy: a run wrote or deleted the binding of another one" },
    edits: [
      {
        file: HELD,
        from: "return msSince(this.#confirmed, this.#options.clock) <= RENEW_DEADLINE_MS;",
        to: "void msSince; return true;",
      },
      // Which is what notices it where another run has frozen the CRD.
      { file: "freeze/freeze.ts", from: "    await renew();", to: "    void renew;" },
    ],
  },
  {
    name: "renew a Lease without a precondition",
    found: { seed: 86, breaks: "Lease: a run writes that of another one" },
    edits: [
      {
        file: "lease/lease-write.ts",
        from: "body: { metadata: { uid, resourceVersion, annotations }, spec } };",
        to: "body: { metadata: { annotations }, spec } };",
      },
      // Which is what notices that another run has written it.
      OF_ANY_TIME,
    ],
  },
  {
    name: "take a Lease over after a second",
    found: { seed: 1, breaks: "Lease: a run wrote that of a run, 1780 ms after it was written" },
    edits: [
      {
        file: ACQUIRE,
        from: "const deadline = clock.monotonic() + observedMsOf(found);",
        to: "const deadline = clock.monotonic() + 1_000; void observedMsOf;",
      },
    ],
  },
  {
    name: "take a Lease over by the time that it says",
    found: { seed: 41, breaks: "Lease: a run wrote that of a run, 11498 ms after it was written" },
    edits: [
      {
        file: ACQUIRE,
        from: "const deadline = clock.monotonic() + observedMsOf(found);",
        to: "const deadline = clock.monotonic() + Date.parse(found.spec?.renewTime ?? '') + observedMsOf(found) - clock.now();",
      },
    ],
  },
  {
    name: "a Lease that went back in time is still held",
    survives: "the objects of the resource went back as well",
    edits: [BACK_IN_TIME],
  },
  {
    name: "a run that loses its Lease by giving it up has a result",
    survives:
      "the record of a migration sees most restores: seed 249234 met one that it does not see, on an earlier tree",
    edits: [{ file: "lease/run-lease.ts", from: "  cleanup.check(() => lease.assertNotLost());\n", to: "" }],
  },
  {
    name: "objects that went back in time say nothing",
    survives: "the Lease went back as well: Leases have no etcd of their own in the simulation",
    edits: [RESTORED],
  },
  {
    name: "neither a Lease nor objects that went back in time say anything",
    survives: "etcd has to be restored in the seconds between the last page and the prune: not often enough so far",
    edits: [BACK_IN_TIME, RESTORED],
  },
  {
    name: "a Lease that another run holds is still held",
    found: { seed: 336, breaks: "Lease: a run wrote that of a run, which it does not hold" },
    edits: [
      {
        file: HELD,
        from: "return metadata.uid === this.#lease.metadata.uid && spec?.holderIdentity === this.#options.identity;",
        to: "void metadata; void spec; return true;",
      },
      OF_ANY_TIME,
    ],
  },
  {
    name: "a Lease with a newer resourceVersion has not gone back in time",
    survives:
      "no restore of the simulation raises revisions, and none is followed by an edit of a Lease in the seconds to its renewal; test/lease/run-lease.test.ts finds it",
    edits: [OF_ANY_TIME],
  },
  {
    name: "believe any answer to a write that has the status 200",
    found: { seed: 779, breaks: "Lease: a run writes that of another one" },
    edits: [
      {
        file: "kube/answered-object.ts",
        from: "if (!isNamed || !(dryRun || isText(resourceVersion))) throw new DoubtfulAnswer(notThis(verb, path));",
        to: "void isNamed; void dryRun; void resourceVersion; void verb; void path;",
      },
      { file: "lease/lease-write.ts", from: "if (holder !== identity) {", to: "if (false) {" },
    ],
  },
];
