import type { Edit, Mutation } from "./mutation.ts";

const FREEZE = "freeze/freeze.ts";
const EXPECTATION = "freeze/crd-expectation.ts";
const MONITOR = "migrator/crd-monitor.ts";
const PRUNE = "migrator/prune.ts";
const LIFTED: Edit = { file: EXPECTATION, from: "if (!hasFreezeAnnotation(crd)) {", to: "if (false) {" };
const OWNER: Edit = {
  file: EXPECTATION,
  from: "if (crd.metadata.annotations?.[OWNER_ANNOTATION] !== expected.owner) {",
  to: "if (false) {",
};
const FLIPPED: Edit = { file: EXPECTATION, from: "if (storage !== storageVersion) {", to: "if (false) {" };
const REPLACED: Edit = { file: EXPECTATION, from: "if (crd.metadata.uid !== expected.uid) {", to: "if (false) {" };
const UNWATCHED: Edit = {
  file: MONITOR,
  from: "          this.judge(event.object);\n",
  to: "",
};

/** What is wrong about the freeze, the watch of the CRD, and the prune. */
export const FREEZES: readonly Mutation[] = [
  {
    name: "do not freeze",
    found: { seed: 1, breaks: "told: it says frozen, and the CRD has no freeze of it" },
    edits: [
      {
        file: FREEZE,
        from: "return { ...besides, [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: formatOwner(owner) };",
        to: "return { ...besides, [OWNER_ANNOTATION]: formatOwner(owner) };",
      },
    ],
  },
  {
    name: "prune beside the condition that casts doubt on it",
    found: { seed: 50, breaks: "stored versions: a prune of the CRD leaves the condition that casts doubt on it" },
    edits: [
      {
        file: PRUNE,
        from: "...(conditions === undefined ? {} : { conditions }) };",
        to: "};",
      },
    ],
  },
  {
    name: "take over the freeze of another client",
    found: { seed: 26, breaks: "freeze: a run changed the freeze of the CRD, which another client had put on" },
    edits: [
      {
        file: FREEZE,
        from: 'if (freezer === undefined || (freezer.kind === "run" && freezer.owner.lease === lease)) {',
        to: "if (freezer === undefined || lease !== '') {",
      },
    ],
  },
  {
    name: "lift a freeze without a look at its owner",
    found: {
      seed: 157,
      breaks: "freeze: a run changed the freeze of the CRD, which is that of a run, a run that holds its Lease",
    },
    edits: [
      {
        file: FREEZE,
        from: "const isOurs = found !== undefined && isSameRun(found, owner);",
        to: "void isSameRun; void owner; const isOurs = found !== undefined;",
      },
    ],
  },
  {
    name: "take over what another run left without a renewal of the Lease",
    found: {
      seed: 382_715,
      breaks: "freeze: a run changed the freeze of the CRD, which is that of a run, a run that holds its Lease",
    },
    edits: [{ file: FREEZE, from: "    await renew();", to: "    void renew;" }],
  },
  {
    name: "take off what another run left without a renewal of the Lease",
    survives:
      "a user has to delete the Lease in the moment in which a run has taken it, and its requests have to fail for a second: a plan in regressions/ finds it",
    edits: [{ file: "freeze/leftovers.ts", from: "    await context.renew();\n", to: "" }],
  },
  {
    name: "leave the freeze of an earlier attempt, which a restore of etcd brought back",
    survives:
      "one world in thousands restores etcd at that moment; regressions/restore-to-an-earlier-attempt.json does",
    edits: [
      {
        file: FREEZE,
        from: "const isOurs = found !== undefined && isSameRun(found, owner);",
        to: "const isOurs = found !== undefined && isSameRun(found, owner) && found.since === owner.since;",
      },
    ],
  },
  {
    name: "a freeze that may be written after its run is not forestalled",
    survives:
      "a freeze has to be on its way for longer than a run waits for an answer, and the run to end before it lands: plans in regressions/ find it",
    edits: [
      {
        file: FREEZE,
        from: "if (lateFreezeAt !== undefined) await",
        to: 'if (lateFreezeAt === "") await',
      },
    ],
  },
  {
    name: "write annotations of a CRD without a precondition",
    found: { seed: 26, breaks: "freeze: a run took off or changed the freeze that user put on the CRD" },
    edits: [
      {
        file: FREEZE,
        from: "body: { metadata: { uid, resourceVersion, annotations } } };",
        to: "body: { metadata: { annotations } } }; void uid; void resourceVersion;",
      },
    ],
  },
  {
    name: "a run that fails leaves its freeze",
    found: { seed: 4, breaks: "told: a run it says startingAgain, and its freeze is in place" },
    edits: [
      {
        file: "retry/cleanup.ts",
        from: "      for (const problem of await this.#undoAll()) {",
        to: "      for (const problem of [] as string[]) {",
      },
    ],
  },
  {
    name: "a run that does not get on keeps its freeze",
    edits: [
      {
        file: "retry/retrier.ts",
        from: "return Math.max(blipLeftMs, maxFreezeIdleMs - Math.max(stuckMs, budget?.frozenMs ?? 0));",
        to: "void blipLeftMs; return Number.POSITIVE_INFINITY;",
      },
    ],
    found: { seed: 170, breaks: "freeze: a run keeps it, and does not get on" },
  },
  {
    name: "time in which an object failed counts only after what others failed",
    survives:
      "it costs a run about a minute of its freeze, which the check allows; test/retry/run-budget.test.ts finds it",
    edits: [
      {
        file: "retry/run-budget.ts",
        from: "let from = Math.max(since, this.#notBefore);",
        to: "let from = Math.max(since, this.#notBefore, this.#intervals.at(-1)?.to ?? since);",
      },
    ],
  },
  {
    name: "what a run waits for a Retry-After is no time of its freeze",
    survives:
      "refusals with a long Retry-After also keep the run from lifting its freeze, and it lifts that while it waits: a test of the retrier finds it",
    edits: [
      {
        file: "retry/retrier.ts",
        from: "const ms = Math.min(leftMs, Math.ceil(this.#freezeLeftMs(state.since)));",
        to: "const ms = leftMs;",
      },
      {
        file: "retry/retrier.ts",
        from: "const isFreezeOver = this.#freezeLeftMs(state.since) <= 0;",
        to: "const isFreezeOver = false;",
      },
    ],
  },
  {
    name: "a freeze is to be lifted once its write was answered",
    survives:
      "the write has to arrive and its answer to be lost, and the run to be told to end before it asks again; regressions/run-told-to-end-whose-freeze-was-not-answered.json does",
    edits: [
      {
        file: "freeze/freeze-hold.ts",
        from: "    cleanup.defer(\n      `lift the freeze of",
        to: "    const early = await freeze(context, crdName, owner, { besides });\n    cleanup.defer(\n      `lift the freeze of",
      },
      {
        file: "freeze/freeze-hold.ts",
        from: "const frozen = await freeze(context, crdName, owner, { besides, onDoubt });",
        to: "const frozen = early; void onDoubt;",
      },
    ],
  },
  {
    name: "any answer to a deletion that has the status 200 says that it is done",
    survives:
      "something between has to answer with 200 in the moment in which a policy is removed; regressions/policy-removed-by-a-proxy.json does",
    edits: [
      {
        file: "kube/answered-object.ts",
        from: "if (!isSuccess && metadataOf(body).name !== asked.name) {",
        to: "void isSuccess; if (false) {",
      },
    ],
  },
  {
    name: "a policy is left",
    found: {
      seed: 1,
      breaks:
        'policy: a run ended and left /registry/validatingadmissionpolicies/a run.the CRD: Cannot continue with "the CR',
    },
    edits: [
      {
        file: "freeze/guard-install.ts",
        from: "await retrier.run(() => client.delete(resource, { name }, options), signal);",
        to: "void options; void retrier; void client; void signal;",
      },
    ],
  },
  {
    name: "a freeze that is lifted ends no run",
    survives: "the proof before the prune looks at it as well, and a storage version that changes ends the run",
    edits: [LIFTED],
  },
  {
    name: "a freeze that another run took over ends no run",
    survives: "a run that took it over holds the Lease",
    edits: [OWNER],
  },
  {
    name: "a storage version that changes ends no run",
    survives: "it changes only where the freeze was lifted, which ends the run",
    edits: [FLIPPED],
  },
  {
    name: "the watch of the CRD looks at nothing",
    found: { seed: 543, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [UNWATCHED],
  },
  {
    name: "a freeze that is lifted and a storage version that changes end no run",
    found: { seed: 543, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [LIFTED, OWNER, FLIPPED],
  },
  {
    name: "nothing is looked at again before the prune",
    found: { seed: 8, breaks: "told: a run says migrated to v1, and the storage version is v1alpha1" },
    edits: [
      LIFTED,
      OWNER,
      FLIPPED,
      {
        file: "migrator/crd-run.ts",
        from: "proveAgain: () => this.#evidence.repeat(() => readCrd(this.#context, this.#crdName)),",
        to: "proveAgain: async () => undefined,",
      },
    ],
  },
  {
    name: "a CRD that is created again ends no run",
    survives: "the watch of the CRD tells that it is deleted",
    edits: [REPLACED],
  },
  {
    name: "a CRD that is created again ends no run, frozen or not",
    survives: "the watch of the CRD tells that it is deleted",
    edits: [REPLACED, LIFTED, OWNER],
  },
  {
    name: "a gap in the watch of the CRD is bridged without a look",
    survives:
      "the watch has to end while it is late and the storage version goes there and back: not often enough so far",
    edits: [{ file: MONITOR, from: "if (crd.metadata.generation !== this.#generation) {", to: "if (false) {" }],
  },
  {
    name: "the prune does not wait for the watch of the CRD",
    survives:
      "the watch has to be late and the storage version to go there and back in the same second: not often enough so far",
    edits: [
      {
        file: MONITOR,
        from: "while (crd.metadata.generation !== this.#generation && isNewer(",
        to: "while (false && isNewer(",
      },
    ],
  },
  {
    name: "leave the policy of a dead run on a CRD that a user froze",
    found: { seed: 41_338, breaks: "freeze: the policy is left after an undisturbed run" },
    edits: [
      {
        file: "freeze/leftovers.ts",
        from: "  if (freezeOwnerOf(crd) !== undefined || hasCheckpointKey(crd)) {",
        to: `  if (crd.metadata.annotations?.["ksvm.sigs.k8s.io/migrating"] !== undefined) {
    return freezeOwnerOf(crd) !== undefined;
  }
  if (hasCheckpointKey(crd)) {`,
      },
    ],
  },
  {
    name: "look for the policy of a dead run, and not for its binding",
    found: { seed: 359_128, breaks: "freeze: the binding is left after an undisturbed run" },
    edits: [
      {
        file: "freeze/guard-install.ts",
        from: "[POLICIES, POLICY_BINDINGS].map((resource) => findOne(context, resource, guard))",
        to: "[POLICIES].map((resource) => findOne(context, resource, guard))",
      },
    ],
  },
  {
    name: "write objects in a version that storedVersions lacks",
    found: { seed: 10_177, breaks: "S1: an object that ksvm writes in that version" },
    edits: [
      {
        file: "migrator/foreign-prunes.ts",
        from: "if (isStorageVersionListed(crd)) {\n      return;",
        to: "if (isStorageVersionListed(crd) || !isStorageVersionListed(crd)) {\n      return;",
      },
    ],
  },
  {
    name: "a run without a freeze does not look at storedVersions while it writes",
    survives:
      "another client has to prune in a storage version of before, while requests are refused for minutes; regressions/storage-version-that-another-client-prunes-during-a-page.json does",
    edits: [
      {
        file: "migrator/listed-storage.ts",
        from: "      await this.#looks.recent();\n",
        to: "",
      },
      { file: "migrator/listed-storage.ts", from: "while (this.#looks.areOld)", to: "while (false)" },
    ],
  },
  {
    name: "verify writes without a look whether storedVersions lists the storage version",
    found: { seed: 278, breaks: "S1: an object that ksvm writes in a version that another client took out" },
    edits: [
      {
        file: "verify/verify-run.ts",
        from: "whileListed(context, writes, (...fenced) => this.#attempt(...fenced));",
        to: "(void writes, this.#attempt(context, { fence, resource: this.#resource }));",
      },
    ],
  },
  {
    name: "a run with a freeze judges the CRD by its watch alone",
    survives:
      "the watch of the CRD has to be late, while the conversion changes and writes take long; regressions/conversion-that-changes-unseen-by-a-late-watch.json does",
    edits: [{ file: "migrator/foreign-prunes.ts", from: "(crd) => this.judge(crd));", to: "(crd) => this.saw(crd));" }],
  },
  {
    name: "a run without a freeze goes on where the conversion changes",
    survives:
      "the API server of the run has to be behind that change while writes take long; regressions/conversion-that-changes-during-a-page.json does",
    edits: [{ file: "migrator/listed-storage.ts", from: "return isSame ?", to: "return isSame || !isSame ?" }],
  },
  {
    name: "a run without a freeze goes on where the storage version changes",
    survives:
      "another client has to prune while the API server of a run is behind that change; regressions/storage-version-that-changes-during-a-page.json does",
    edits: [
      { file: "migrator/listed-storage.ts", from: "if (from !== to) {", to: "if (from !== from) {" },
      { file: "migrator/listed-storage.ts", from: "return areSame ?", to: "return areSame || !areSame ?" },
    ],
  },
  {
    name: "a look at storedVersions counts as new after a suspension",
    survives:
      "another client has to prune in a storage version of before, while the machine of a run is suspended between two writes; regressions/storage-version-that-another-client-prunes-during-a-suspension.json does",
    edits: [
      {
        file: "migrator/crd-looks.ts",
        from: "msSince(this.#answered, this.#context.clock)",
        to: "this.#context.clock.monotonic() - this.#answered.monotonic",
      },
    ],
  },
  {
    name: "a run with a freeze does not look at storedVersions before its first write",
    survives:
      "another client has to prune right after the freeze, and before the first write of an object; regressions/storage-version-that-another-client-prunes-right-after-the-freeze.json does",
    edits: [
      {
        file: "migrator/followed-schemas.ts",
        from: "if (this.#converts || !(this.#isListed || this.isResumed())) {",
        to: "if (this.#converts) {",
      },
    ],
  },
  {
    name: "any answer to a read that has the status 200 is the object",
    found: { seed: 242, breaks: "policy: a run ended and left its policy" },
    edits: [
      {
        file: "kube/answered-object.ts",
        from: 'if (metadataOf(body).name !== asked.name) throw new DoubtfulAnswer(notThis("get", asked.path));',
        to: "void asked;",
      },
    ],
  },
  {
    name: "a run with a freeze believes its watch of the CRD alone",
    survives:
      "no seed has a late watch while another client prunes; regressions/storage-version-that-another-client-prunes-unseen-by-a-late-watch.json does",
    edits: [
      { file: "migrator/foreign-prunes.ts", from: "      await this.#looks.recent();\n", to: "" },
      { file: "migrator/foreign-prunes.ts", from: " || this.#looks.areOld", to: "" },
    ],
  },
  {
    name: "prune without a renewal of the Lease",
    found: { seed: 671, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PRUNE,
        from: "    await renewLease();\n    return client.patch",
        to: "    void renewLease;\n    return client.patch",
      },
    ],
  },
  {
    name: "prune without a precondition",
    found: { seed: 164, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PRUNE,
        from: "const body = { metadata: { uid, resourceVersion },",
        to: "void resourceVersion; const body = { metadata: { uid },",
      },
    ],
  },
  {
    name: "prune to the last of the stored versions",
    found: { seed: 63, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: PRUNE,
        from: "const status = { storedVersions: [storageVersion], ",
        to: "const status = { storedVersions: (void storageVersion, storedVersionsOf(crd).slice(-1)), ",
      },
    ],
  },
  {
    name: "a prune that conflicts counts as pruned",
    survives: "what is pruned is read back: that needs both",
    edits: [
      {
        file: PRUNE,
        from: "if (isConflict(error)) {\n      return false;",
        to: "if (isConflict(error)) {\n      return true;",
      },
    ],
  },
  {
    name: "what is pruned is not read back",
    survives: "a prune that was answered did what it says: that needs both",
    edits: [
      {
        file: PRUNE,
        from: "if (storedVersions.length === 1 && storedVersions[0] === storageVersion) {",
        to: "if (storageVersion !== '') {",
      },
    ],
  },
  {
    name: "a prune that conflicts counts as pruned, and is not read back",
    found: { seed: 40, breaks: "told: it says migrated, and storedVersions has both" },
    edits: [
      {
        file: PRUNE,
        from: "if (isConflict(error)) {\n      return false;",
        to: "if (isConflict(error)) {\n      return true;",
      },
      {
        file: PRUNE,
        from: "if (storedVersions.length === 1 && storedVersions[0] === storageVersion) {",
        to: "if (storageVersion !== '') {",
      },
    ],
  },
  {
    name: "leave a policy that another client writes while it is removed",
    found: { seed: 1_011, breaks: "policy: a run leaves that of its freeze" },
    edits: [
      {
        file: "freeze/guard-install.ts",
        from: "found = await findOne(context, resource, { name });\n",
        to: 'return "kept";\n',
      },
    ],
  },
];
