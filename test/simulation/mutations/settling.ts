import type { Edit, Mutation } from "./mutation.ts";

const SETTLE = "apiservers/settle.ts";
const WAIT = "apiservers/settle-wait.ts";
const FINDER = "apiservers/api-server-finder.ts";
const SEEN = "apiservers/seen-servers.ts";

/** The first look shows what these mistakes miss: it takes both. */
const NO_FIRST_LOOK: Edit = {
  file: "migrator/freeze-evidence.ts",
  from: "const look = frozen === undefined ? async () => undefined : this.#firstLook(frozen);",
  to: "const look = async () => undefined; void this.#firstLook;",
};

const UNNOTED_QUESTION: Edit = {
  file: "apiservers/ask-all.ts",
  from: "      if (signal.aborted) {\n",
  to: "      if (signal.aborted && false) {\n",
};

/** What is wrong while late writes of an old version are waited for. */
export const SETTLING: readonly Mutation[] = [
  {
    name: "skip the settle wait",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: WAIT,
        from: "  await new Settling(context, { ...options, lagged: lagged || lag !== undefined }).untilSettled();",
        to: "  void Settling; void lagged;",
      },
    ],
  },
  {
    name: "settle for a tenth of the time",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: SETTLE,
        from: "const waitMs = API_TIME_RESOLUTION_MS + settleMs;",
        to: "const waitMs = settleMs / 10;",
      },
    ],
  },
  {
    name: "believe the stamp of any clock",
    found: { seed: 804, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: SETTLE,
        from: "const believedUntil = Math.min(serverNow, localNow) - waitMs - STAMP_MARGIN_MS;",
        to: "const believedUntil = Math.max(serverNow, localNow) - waitMs;",
      },
    ],
  },
  {
    name: "believe a stamp without a margin",
    found: { seed: 804, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [{ file: SETTLE, from: "- waitMs - STAMP_MARGIN_MS;", to: "- waitMs;" }],
  },
  {
    name: "believe the creation of a CRD in the place of its last change",
    found: { seed: 55, breaks: "conversion: objects stored not as the webhook converts them" },
    edits: [{ file: SETTLE, from: "undefined : Math.max(...times);", to: "undefined : Math.min(...times);" }],
  },
  {
    name: "a change of the conversion needs no settling",
    found: { seed: 55, breaks: "conversion: objects stored not as the webhook converts them" },
    edits: [
      {
        file: SETTLE,
        from: "(fields) => ownsVersions(fields) || ownsConversion(fields)",
        to: "(fields) => { void ownsConversion; return ownsVersions(fields); }",
      },
    ],
  },
  {
    name: "a run goes on where the conversion changes",
    found: { seed: 110, breaks: "conversion: pruned, and the conversion changed after API servers converged" },
    edits: [
      {
        file: "freeze/crd-expectation.ts",
        from: "if (!isDeepStrictEqual(conversionBesidesBundle(crd), conversion)) {",
        to: "if (!isDeepStrictEqual(conversion, conversion)) {",
      },
    ],
  },
  {
    name: "what ended an attempt, a lag or a silence, is forgotten",
    survives:
      "identity Leases tell of what stood still, and what is behind the next freeze is waited for: several safeguards",
    edits: [
      {
        file: "apiservers/seen-servers.ts",
        from: "return { onSilence: () => this.silent(), onLag: () => this.#lagged(resource) };",
        to: "void resource; return { onSilence: () => undefined, onLag: () => undefined };",
      },
    ],
  },
  {
    name: "requests without an answer say nothing before API servers are looked for",
    survives:
      "a program has to begin while an API server stands still for 15 minutes, and to wait for another migrator then: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/seen-servers.ts",
        from: "if (isRead && ms > SLOW_ANSWER_MS) {",
        to: "if (isRead && ms > Number.POSITIVE_INFINITY) {",
      },
      {
        file: "migrator/assemble-run.ts",
        from: "if (error instanceof TransportError && object === undefined) {",
        to: "if (error instanceof TransportError && object === null) {",
      },
      {
        file: "migrator/assemble-run.ts",
        from: "onUnseen: () => seen.silent()",
        to: "onUnseen: () => undefined",
      },
      {
        file: "apiservers/lease-lookout.ts",
        from: "await look(AbortSignal.any([ended, clock.timeout(ANSWER_TIMEOUT_MS)]));",
        to: "",
      },
    ],
  },
  {
    name: "identity Leases are not looked at while a run waits",
    survives:
      "a run has to wait for another migrator while an API server goes on that stood still for 15 minutes: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/lease-lookout.ts",
        from: "await look(AbortSignal.any([ended, clock.timeout(ANSWER_TIMEOUT_MS)]));",
        to: "",
      },
    ],
  },
  {
    name: "a run does not notice that it stood still itself",
    survives:
      "a run has to wait for another migrator, and to stand still beside an API server, for 15 minutes: a plan in regressions/ finds it",
    edits: [
      {
        file: "migrator/assemble-run.ts",
        from: "onUnseen: () => seen.silent()",
        to: "onUnseen: () => undefined",
      },
    ],
  },
  {
    name: "a look at the identity Leases that fails counts for nothing",
    survives:
      "looks have to fail until an API server goes on that stood still for 15 minutes: a plan in regressions/ finds it",
    edits: [{ file: "apiservers/lease-lookout.ts", from: "if (!ended.aborted) {", to: "if (ended.aborted) {" }],
  },
  {
    name: "a look that shows no identity Lease counts for nothing",
    survives:
      "looks have to be denied until an API server goes on that stood still for 15 minutes: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/api-server-finder.ts",
        from: "if (!isShown) {",
        to: "if (!isShown && endpoints !== undefined) {",
      },
    ],
  },
  {
    name: "what the trigger saw of API servers that disagree needs no settling",
    survives:
      "an API server has to be behind for 16 minutes, and to follow when nothing else happens: a plan in regressions/ finds it",
    edits: [
      {
        file: "controller/leader-part.ts",
        from: "const disagreed = (name: string): void => seen.noting(name).onLag();",
        to: "const disagreed = (_: string): void => undefined;",
      },
    ],
  },
  {
    name: "what the trigger sees of API servers that disagree counts once the StorageState says so",
    survives:
      "an API server has to be behind for 16 minutes while no StorageState can be written, and to follow then: a plan in regressions/ finds it",
    edits: [
      { file: "trigger/reconciler.ts", from: "      watch.disagreed(name);\n", to: "" },
      {
        file: "trigger/reconciler.ts",
        from: "    logDecision(logger, name, decision, this.#waiting.get(name));\n",
        to:
          "    logDecision(logger, name, decision, this.#waiting.get(name));\n" +
          '    if (decision.cause === "disagreement") watch.disagreed(name);\n',
      },
    ],
  },
  {
    name: "an identity Lease is overdue by its stamp alone",
    survives: "an API server whose clock is ahead has to stand still for 15 minutes: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/seen-servers.ts",
        from: "isOverdue(lease) || now - seenAt > OVERDUE_MS",
        to: "isOverdue(lease)",
      },
    ],
  },
  {
    name: "an API server that was behind one CRD counts for that one alone",
    survives:
      "an API server has to be behind two CRDs for 16 minutes, and one run has to end before it follows: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/seen-servers.ts",
        from: "this.#behind.set(resource, this.#clock.monotonic());",
        to: "",
      },
    ],
  },
  {
    name: "a replica that begins to lead relies on what it saw itself",
    survives:
      "an API server has to stand still for 15 minutes, and a leader to crash just before it goes on: a plan in regressions/ finds it",
    edits: [
      {
        file: "controller/leader-part.ts",
        from: "    seen.tookOver();\n",
        to: "",
      },
    ],
  },
  {
    name: "one that left while another replica led counts as a silence alone",
    survives:
      "an API server has to be behind, and to end just before the leader crashes: a plan in regressions/ finds it",
    edits: [
      {
        file: "controller/leader-part.ts",
        from: "    seen.tookOver();\n",
        to: "    seen.silent();\n",
      },
    ],
  },
  {
    name: "a run that takes over the Lease of a dead one takes one that left for a silence alone",
    survives:
      "an API server has to be behind, and to end just before a run that waits for it is killed: a plan in regressions/ finds it",
    edits: [{ file: "migrator/take-lease.ts", from: "seen?.tookOver();", to: "seen?.silent();" }],
  },
  {
    name: "a run that ends tells the next one nothing of API servers",
    survives:
      "no seed starts a run right after an API server stood still, where the one before it did not die: a plan in regressions/ finds it",
    edits: [{ file: "migrator/migrate-crd.ts", from: "return !isRemembered && ", to: "return isRemembered && " }],
  },
  {
    name: "a run that ends does not ask whether machines were suspended",
    survives:
      "all machines have to be suspended, and the run to be told to end right after they go on: a plan in regressions/ finds it",
    edits: [{ file: "apiservers/seen-servers.ts", from: "    this.noticeSuspension();\n", to: "" }],
  },
  {
    name: "an API server that is behind is remembered once it was asked again",
    survives:
      "the run has to be told to end within the seconds between two answers of an API server that is behind and ends: a plan in regressions/ finds it",
    edits: [
      { file: "migrator/freeze-evidence.ts", from: "      seen?.noting(crd.metadata.name).onLag();\n", to: "" },
      UNNOTED_QUESTION,
      NO_FIRST_LOOK,
    ],
  },
  {
    name: "a question that is broken off is no silence",
    survives:
      "the run has to be told to end while an API server that ends leaves a question unanswered: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/ask-all.ts",
        from: "failure?.silent === true || clock.monotonic() - startedAt > SLOW_ANSWER_MS",
        to: "failure !== undefined && (failure.silent || clock.monotonic() - startedAt > SLOW_ANSWER_MS)",
      },
      NO_FIRST_LOOK,
    ],
  },
  {
    name: "an API server that has not answered where the run ends was not behind",
    survives:
      "the run has to be told to end within the three seconds for which an API server that is behind holds a question: a plan in regressions/ finds it",
    edits: [UNNOTED_QUESTION, NO_FIRST_LOOK],
  },
  {
    name: "a leader without a run does not look at identity Leases",
    survives:
      "a migration has to be suspended for as long as an API server stands still, and the trigger be off: a plan in regressions/ finds it",
    edits: [
      {
        file: "controller/leader-part.ts",
        from: "look: (within) => finder.glance(within),",
        to: "look: () => Promise.resolve(),",
      },
    ],
  },
  {
    name: "identity Leases are not looked at where API servers are named",
    survives: "no seed names them: a plan in regressions/ finds it",
    edits: [{ file: "apiservers/api-server-finder.ts", from: "await this.#lookBesides(signal);", to: "" }],
  },
  {
    name: "API servers that are named are not asked while a run waits",
    survives: "no seed names them: a plan in regressions/ finds it",
    edits: [
      {
        file: "apiservers/api-server-finder.ts",
        from: "if (!isShown) {",
        to: "if (!isShown && endpoints === undefined) {",
      },
    ],
  },
  {
    name: "an API server that was behind needs no settling",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [{ file: WAIT, from: "if (first && this.#options.lagged) {", to: "if (first && false) {" }],
  },
  {
    name: "an API server that joins needs no settling",
    survives: "an API server that joins knows every CRD as it is, and writes no old version",
    edits: [{ file: WAIT, from: "if (options.newestJoin !== undefined) {", to: "if (false) {" }],
  },
  {
    name: "an API server that is silent while it is waited needs no settling",
    survives: "the seeds 1 to 2,500 do not meet an API server that is silent then and goes on with a late write",
    edits: [{ file: WAIT, from: "this.#saw(`silence ${this.#changes.size}`);", to: "" }],
  },
  {
    name: "silences before the attempt need no settling",
    found: { seed: 226, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/api-server-finder.ts",
        from: "return { ...found, silent, ignored: this.#leases.ignored };",
        to: "void silent; return { ...found, silent: false, ignored: this.#leases.ignored };",
      },
      {
        file: "migrator/freeze-evidence.ts",
        from: "const wereSilent = seen?.wereSilentWithin(options.settleMs, options.shutdownDelayMs) === true;",
        to: "const wereSilent = false;",
      },
    ],
  },
  {
    name: "an API server that leaves needs no settling",
    found: { seed: 1_065, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: SEEN,
        from: "return wasBehind || hasLeft || now - this.#silentAt <= ms;",
        to: "void hasLeft; return wasBehind || now - this.#silentAt <= ms;",
      },
    ],
  },
  {
    name: "the shutdown delay is ignored",
    found: { seed: 227, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: FINDER,
        from: "const ending = shutdownDelayMs === 0 ? undefined :",
        to: "const ending = shutdownDelayMs >= 0 ? undefined :",
      },
      {
        file: FINDER,
        from: "if (shutdownDelayMs > 0 && seen",
        to: "if (shutdownDelayMs < 0 && seen",
      },
      { file: SEEN, from: "const leftMs = ms + shutdownDelayMs;", to: "const leftMs = ms + 0 * shutdownDelayMs;" },
      { file: "apiservers/late-writes-since.ts", from: "+ shutdownDelayMs;", to: "+ 0 * shutdownDelayMs;" },
    ],
  },
  {
    name: "API servers are asked while one ends that takes requests",
    found: { seed: 227, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: FINDER,
        from: "const ending = shutdownDelayMs === 0 ? undefined :",
        to: "const ending = shutdownDelayMs >= 0 ? undefined :",
      },
    ],
  },
  {
    name: "a run without a freeze does not wait for the shutdown delay",
    found: { seed: 537, breaks: "told: it says re-encrypted, and an object is encrypted with another key" },
    edits: [{ file: "apiservers/late-writes-since.ts", from: "+ shutdownDelayMs;", to: "+ 0 * shutdownDelayMs;" }],
  },
  {
    name: "a machine that was suspended needs no settling",
    survives: "the seeds 1 to 2,500 do not meet a suspension of the machine of a run while an API server stands still",
    edits: [
      {
        file: WAIT,
        from: "    if (this.#hasJumped()) {\n      this.#jumps++;",
        to: "    if (false) {\n      this.#jumps++;",
      },
      {
        file: WAIT,
        from: "    if (this.#hasJumped()) {\n      // Before the wait",
        to: "    if (false) {\n      // Before the wait",
      },
    ],
  },
  {
    name: "any answer shows that an API server lives, also that of a proxy",
    found: { seed: 2_567, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      { file: WAIT, from: "read: versionIn };", to: "read: (body) => { void versionIn; return String(body); } };" },
    ],
  },
  {
    name: "do not lift a freeze again while a run waits",
    survives:
      "a webhook has to keep a run from lifting its freeze while another one keeps it from writing objects: regressions/freeze-that-a-webhook-kept.json has it so",
    edits: [{ file: "migrator/migrate-crd.ts", from: "      await liftAgain(context, memory, signal);\n", to: "" }],
  },
];
