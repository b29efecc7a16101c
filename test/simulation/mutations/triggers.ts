import { LEADS_ON } from "./lease-mutations.ts";
import type { Mutation } from "./mutation.ts";

const NEXT = "trigger/next-status.ts";
const DECIDE = "trigger/decide.ts";
const APPLY = "trigger/apply.ts";
const RECONCILER = "trigger/reconciler.ts";

const CREATE_FIRST = {
  file: APPLY,
  from: "  const heartbeat = await writeState(context, situation, decision);\n  for (",
  to: "  const heartbeat = decision.create === undefined ? await writeState(context, situation, decision) : situation.now;\n  for (",
};

const FORGETS_SIGHTS = {
  file: NEXT,
  from: "return [firstSeen, state?.crd].every(",
  to: "void firstSeen;\n  return [state?.crd].every(",
};

/** What is wrong about what the trigger believes and does. */
export const TRIGGERS: readonly Mutation[] = [
  {
    name: "heartbeats are judged by the clocks of API servers alone",
    edits: [
      {
        file: "trigger/next-status.ts",
        from: "const isFresh = isFollowed || ",
        to: "void isFollowed; const isFresh = ",
      },
    ],
    survives:
      "no seed has the clocks of two API servers behind one address so far apart for that long; regressions/clocks-of-two-api-servers.json does",
  },
  {
    name: "a leader that goes on after a restore looks up what is known of a CRD by its resourceVersion alone",
    survives:
      "the CRD has to get its resourceVersion again, in another state: regressions/resource-version-that-a-restore-gave-again.json does",
    edits: [
      LEADS_ON,
      {
        file: "trigger/crd-index.ts",
        from: 'return [uid, resourceVersion, generation, digest].join(" ");',
        to: 'return [uid, resourceVersion].join(" ") + String([generation, digest]).slice(0, 0);',
      },
    ],
  },
  {
    name: "a look of this process counts however long ago it was",
    edits: [{ file: "trigger/own-looks.ts", from: "msSince(last.at, this.#clock) <= HEARTBEAT_LIMIT_MS && ", to: "" }],
    survives: "no seed has a leader that keeps its Lease and does not look for ten minutes",
  },
  {
    name: "a look of this process counts whatever API servers show",
    edits: [
      { file: "trigger/own-looks.ts", from: " && this.#isAmong(last.clocks, serverTime);", to: "; void serverTime;" },
    ],
    survives: "the simulation has no virtual machine whose two clocks stand still",
  },
  {
    name: "an API server that is behind with a CRD is given fifteen looks, however long they take",
    survives:
      "another client has to prune while an API server is behind that cannot be reached: one seed of 143,000 had that, until one more request moved it",
    edits: [
      {
        file: "trigger/crd-patience.ts",
        from: "now - since <= CRD_PATIENCE_MS",
        to: "now - since <= 15 * 5_000",
      },
      FORGETS_SIGHTS,
    ],
  },
  {
    name: "what a look saw of a CRD and did not write counts for nothing",
    survives:
      "no seed has been found in which another client prunes between the first look at a CRD and the first write of its StorageState, and late writes come more than a minute after that",
    edits: [FORGETS_SIGHTS],
  },
  {
    name: "a look at one CRD that fails notes nothing",
    survives:
      "an API server has to be missing while a CRD is created again, and another client to prune it before the next look at everything: a plan in regressions/ finds it",
    edits: [{ file: "trigger/observer.ts", from: "      await this.#tellOf(this.#crdsOf(name, signal));\n", to: "" }],
  },
  {
    name: "a replica that leads again has forgotten what it saw of CRDs",
    survives:
      "a CRD has to be pruned while a replica leads that cannot write its StorageState, and loses its Lease: a plan in regressions/ finds it",
    edits: [
      {
        file: "controller/leader-part.ts",
        from: "crdMode, onPoll, sights, watch };",
        to: "crdMode, onPoll, sights: (void sights, undefined), watch };",
      },
    ],
  },
  {
    name: "count NothingToDo as proof",
    edits: [
      {
        file: NEXT,
        from: "const isFound = foundNothing(migration) && mayHaveOther(persisted, agreed);",
        to: "void persisted; const isFound = false;",
      },
      {
        file: NEXT,
        from: "migrations.some((one) => !foundNothing(one) && proves(one, shown));",
        to: "migrations.some((one) => proves(one, shown));",
      },
      {
        file: DECIDE,
        from: "isForced: crd?.isClean === true && mayHaveOther(persisted, current),",
        to: "isForced: (void mayHaveOther, false),",
      },
    ],
    found: { seed: 1_168, breaks: "storage state: a StorageState lacks a version that an object is stored in" },
  },
  {
    name: "believe a stale StorageState",
    edits: [
      {
        file: NEXT,
        from: "return !isFresh && !isVouchedFor;",
        to: "return !isFresh && !isFresh === isFresh && !isVouchedFor;",
      },
    ],
    found: { seed: 8_597, breaks: "liveness: /registry/deployments/default/deployments-19 is stored as apps/v1beta2" },
  },
  {
    name: "believe a CRD that a leader had seen before, and that another client has pruned since",
    edits: [
      {
        file: NEXT,
        from: "state === undefined ? isFirstSight(situation, crd) :",
        to: "state === undefined ? (void isFirstSight, true) :",
      },
    ],
    found: { seed: 1_168, breaks: "storage state: a StorageState lacks a version that an object is stored in" },
  },
  {
    name: "what a leader began to write of a CRD that was created again counts for nothing",
    edits: [
      {
        file: NEXT,
        from: "return state?.persisted.includes(UNKNOWN_HASH) === true ? state.persisted : [];",
        to: "return (void state, []);",
      },
    ],
    survives:
      "a leader has to crash between two writes of a StorageState just after a CRD was created again: a plan in regressions/ finds it",
  },
  {
    name: "believe a migration that was proven for another spec of the CRD",
    edits: [
      {
        file: NEXT,
        from: "foundNothing(migration) || migration.provenCrd === specKeyOf(crd);",
        to: "specKeyOf(crd) !== '';",
      },
    ],
    found: { seed: 2_407, breaks: "storage state: a StorageState lacks a version that an object is stored in" },
  },
  {
    name: "call a resource migrated although its CRD is not clean",
    edits: [{ file: NEXT, from: "? hasProof && !crd.isClean", to: "? hasProof && !crd.isClean && crd.isClean" }],
    survives:
      "a migration has to be proven for the spec that the CRD has, and storedVersions grows with the spec; not in 500 clusters with controllers",
  },
  {
    name: "believe any migration of the resource",
    edits: [
      {
        file: NEXT,
        from: "return migration.hash !== undefined && migration.hash === agreed && migration.storageVersion === storageVersion;",
        to: "void agreed; void storageVersion; return migration.hash !== undefined;",
      },
    ],
    survives: "it has to be proven for the spec that the CRD has",
  },
  {
    name: "do not note that the storage version is another one",
    edits: [
      {
        file: NEXT,
        from: "  if (state.current !== agreed) {\n",
        to: "  if (state.current !== agreed && state.current === '') {\n",
      },
    ],
    survives: "storedVersions of the CRD says the same",
  },
  {
    name: "forget versions that storedVersions lists",
    edits: [
      {
        file: NEXT,
        from: "return isSeen(state?.crd, crd) ? [] : crd.storedHashes;",
        to: "return isSeen(state?.crd, crd) ? [] : [];",
      },
    ],
    found: { seed: 144, breaks: "storage state: a StorageState lacks a version that an object is stored in" },
  },
  {
    name: "keep what migrations proved before the storage version changed",
    edits: [
      {
        file: DECIDE,
        from: `return cause === "disagreement" ? state?.current !== UNKNOWN_HASH : cause !== "completed" && cause !== "unchanged";`,
        to: `void cause; void state; void UNKNOWN_HASH; return false;`,
      },
    ],
    survives: "what they prove is of another spec of the CRD",
  },
  {
    name: "believe what a poll saw of a CRD seconds ago",
    edits: [
      {
        file: RECONCILER,
        from: `return cause === "completed" || (crd !== undefined && (cause === "disagreement" || cause === "storedVersions"));`,
        to: `return cause === "new" && crd === undefined;`,
      },
    ],
    survives: "not in 500 clusters with controllers",
  },
  {
    name: "write a StorageState without a precondition",
    edits: [
      {
        file: APPLY,
        from: "const body = { metadata: { resourceVersion }, status: statusOf(situation, decision) };",
        to: "const body = { status: statusOf(situation, decision) };",
      },
    ],
    survives: "not in 500 clusters with controllers",
  },
  {
    name: "create a migration before the StorageState says why",
    edits: [CREATE_FIRST],
    survives: "what is created has a pace that slows down: that needs both",
  },
  {
    name: "create a migration before the StorageState says why, and as fast as it goes",
    edits: [CREATE_FIRST, { file: "trigger/creation-pace.ts", from: "const FREE = 5;", to: "const FREE = Infinity;" }],
    found: { seed: 7, breaks: "controllers: ksvm created more migrations than there is reason for" },
  },
  {
    name: "the trigger does not look where an API server joins",
    found: {
      seed: 625_955,
      breaks:
        "liveness: /registry/volumeattributesclasses/volumeattributesclasses-27 is stored as storage.k8s.io/v1beta1",
    },
    edits: [{ file: "controller/leader-part.ts", from: "seen.onJoin = () => trigger.pollSoon();", to: "" }],
  },
  {
    name: "a migration is deleted whatever was done to it since",
    edits: [
      {
        file: APPLY,
        from: "{ signal, preconditions: { uid, resourceVersion } });",
        to: "{ signal, preconditions: { uid } });",
      },
    ],
    survives:
      "a user has to suspend a migration that the trigger replaces before it knows: regressions/suspension-that-the-trigger-has-not-seen.json has it so",
  },
  {
    name: "a pause counts from now as long as an end is still to come",
    edits: [
      {
        file: "trigger/retry-plan.ts",
        from: "  const told = endedAt",
        to: "  if (endedAt > now) return now;\n  const told = endedAt",
      },
    ],
    survives:
      "the leader has to be replaced by one whose clock is right: regressions/clock-of-a-leader-that-is-ahead.json has it so",
  },
  {
    name: "a pause counts from the end alone",
    edits: [{ file: "trigger/retry-plan.ts", from: "Math.max(createdAt, endedAt);", to: "endedAt;" }],
    survives:
      "a migration has to fail for an hour, with the clock of the leader behind: regressions/clock-of-a-leader-that-is-behind.json has it so",
  },
  {
    name: "a pause counts from now where the creation is still to come as well",
    edits: [{ file: "trigger/retry-plan.ts", from: "now - (endedForMs?.get(uid) ?? 0)", to: "now" }],
    found: {
      seed: 938222,
      breaks: "liveness: the StorageState of widgets.sim.example.com says [Unknown], and its hash is poO+3JpfIcI=",
    },
  },
  {
    name: "a migration that failed is never tried again",
    edits: [
      {
        file: "trigger/retry-plan.ts",
        from: "  return lookAgainMs > 0\n",
        to: "  return lookAgainMs > Number.NEGATIVE_INFINITY\n",
      },
    ],
    found: { seed: 39, breaks: "load: more than 3,000 requests in a minute are about no object" },
  },
  {
    name: "a migration that failed is tried again at once",
    edits: [
      {
        file: "trigger/retry-plan.ts",
        from: "return Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (attempt - 1));",
        to: "return Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** (attempt - 1)) / 60_000;",
      },
    ],
    survives:
      "what is created has a pace that slows down; the seeds 1 to 2,500 have too few failures for more than 30 migrations",
  },
  {
    name: "a CRD is looked at when it changes, and never when it could not be read",
    edits: [
      {
        file: RECONCILER,
        from: "      queue.add(name, delayMs);\n",
        to: "      void delayMs; void queue;\n",
      },
      {
        file: "trigger/trigger.ts",
        from: "this.#pollAt = clock.monotonic() + intervalMs;",
        to: "this.#pollAt = clock.monotonic() + intervalMs * 1_000;",
      },
    ],
    survives: "not in 500 clusters with controllers",
  },
  {
    name: "the trigger asks one API server for all",
    edits: [
      {
        file: "trigger/observer.ts",
        from: "apiServers.clients.map(({ transport })",
        to: "apiServers.clients.slice(0, 1).map(({ transport })",
      },
    ],
    survives:
      "not in 500 clusters with controllers: the one that is asked has to be ahead of the others when a migration has ended",
  },
  {
    name: "create a migration although there is one",
    edits: [
      {
        file: DECIDE,
        from: "if (unfinished.some((one) => isFor(one, observed) && !disown.includes(one))) {",
        to: "if (disown.length > 99 && unfinished.some((one) => isFor(one, observed))) {",
      },
      { file: DECIDE, from: "if (pending.length > 0) {", to: "if (pending.length > 99) {" },
    ],
    found: { seed: 183, breaks: "controllers: ksvm created 41 migrations" },
  },
  {
    name: "take API servers that disagree for ones that agree",
    edits: [
      {
        file: "trigger/agreement.ts",
        from: "return disagreement === undefined && agreed !== undefined",
        to: "return agreed !== undefined",
      },
    ],
    survives:
      "not in 500 clusters with controllers: one API server has to be behind while a migration ends, and the CRD to change in between",
  },
];
