import type { Mutation } from "./mutation.ts";

const GUARD_INSTALL = "freeze/guard-install.ts";
const PROOF = "freeze/freeze-proof.ts";
const ROTATION_PLAN = "certs/rotation-plan.ts";
const REPAIR = "webhook/object-repair.ts";
const WRITER = "webhook/object-writer.ts";
const INITIALIZE = "initializer/initialize.ts";
const EARLIER = "initializer/earlier-migrations.ts";

/** What is wrong about guards, the webhook, its certificates, and the initializer. */
export const WEBHOOKS: readonly Mutation[] = [
  {
    name: "a dry-run that is accepted proves the freeze",
    found: { seed: 859, breaks: "freeze: user changed the storage version of the CRD while a run rests on its freeze" },
    edits: [
      {
        file: PROOF,
        from: 'return { proven: false, reason: "a dry-run of a storage change was accepted", silent: false };',
        to: "return { proven: true };",
      },
    ],
  },
  {
    name: "the policy of another client is taken over",
    found: { seed: 69, breaks: "policy: a run writes that of a user" },
    edits: [{ file: GUARD_INSTALL, from: "if (owner?.lease === lease) {", to: 'if (lease !== "") {' }],
  },
  {
    name: "the policy of another run is removed",
    found: { seed: 336, breaks: "policy: a run deleted the binding of another one, which holds the Lease" },
    edits: [
      {
        file: "freeze/freeze-hold.ts",
        from: "found !== undefined && isSameRun(found, owner);",
        to: "(void isSameRun, void owner, found !== undefined);",
      },
    ],
  },
  {
    name: "a policy is written without a precondition",
    survives:
      "not found in 429 worlds: another client has to write the policy in the milliseconds between a look and a write",
    edits: [
      {
        file: GUARD_INSTALL,
        from: "body: { ...body, metadata: { ...body.metadata, uid, resourceVersion } } };",
        to: "body }; void uid; void resourceVersion;",
      },
    ],
  },
  {
    name: "the binding only audits",
    found: {
      seed: 1,
      breaks: 'liveness: an undisturbed run ends with "Cannot prove that the storage version is frozen"',
    },
    edits: [
      { file: "freeze/freeze-policy.ts", from: 'validationActions: ["Deny"]', to: 'validationActions: ["Audit"]' },
    ],
  },
  {
    name: "the webhook looks at the new object alone",
    found: {
      seed: 18,
      breaks: 'liveness: an undisturbed run ends with "Cannot prove that the storage version is frozen"',
    },
    edits: [
      {
        file: "freeze/freeze-rule.ts",
        from: "if (!isFrozen(oldCrd) || isSameSet(before, after)) {",
        to: "if (!isFrozen(newCrd) || isSameSet(before, after) || !hasMigratingCondition(oldCrd)) {",
      },
    ],
  },
  {
    name: "the configuration of the webhook is not restored",
    found: { seed: 21, breaks: "load: idle replicas of the webhook send more than six requests in a minute" },
    edits: [
      {
        file: REPAIR,
        from: "let live = await this.#writer.apply(wanted, found, signal);",
        to: "if (found !== undefined) return; let live = await this.#writer.apply(wanted, found, signal);",
      },
    ],
  },
  {
    name: "replicas undo each other's writes of the configuration",
    found: { seed: 7, breaks: "load: a replica has 61 writes of guards in a minute" },
    edits: [
      {
        file: WRITER,
        from: "  readonly #options: ObjectWriterOptions;\n\n",
        to: "  readonly #options: ObjectWriterOptions;\n  static made = 0;\n  readonly by = String(ObjectWriter.made++);\n\n",
      },
      {
        file: WRITER,
        from: "isAsWanted(live, wanted) && (isOwned?.(live, wanted) ?? true);",
        to: 'isAsWanted(live, wanted) && (isOwned?.(live, wanted) ?? true) && live.metadata.annotations?.["by"] === this.by;',
      },
      {
        file: WRITER,
        from: "live === undefined ? fields : { ...fields, metadata: { ...fields.metadata, uid, resourceVersion } };",
        to: "{ ...fields, metadata: { ...fields.metadata, annotations: { by: this.by }, uid, resourceVersion } };",
      },
    ],
  },
  {
    name: "replicas write the CA bundle that they know over any other",
    survives:
      "not found in the 271 worlds with the webhook of 2,000 seeds; test/integration/webhook-configuration.test.ts is about it",
    edits: [
      { file: REPAIR, from: "    await this.#options.freshen?.(signal);\n", to: "" },
      {
        file: WRITER,
        from: "live === undefined ? fields : {",
        to: "(void uid, void resourceVersion, live !== null) ? fields : {",
      },
      {
        file: "certs/secret-source.ts",
        from: "if (!this.#newest.take(secret.metadata.resourceVersion, sentAfter)) {",
        to: "if (!this.#newest.take(secret.metadata.resourceVersion, sentAfter) && false) {",
      },
    ],
  },
  {
    name: "a rotation that is held up keeps the serving certificate from being renewed",
    edits: [
      {
        file: ROTATION_PLAN,
        from: "renewalTimeOf(serving, renewBefore / 2) <= judgedAt &&",
        to: "renewalTimeOf(serving, renewBefore / 2) === Number.POSITIVE_INFINITY && judgedAt > 0 &&",
      },
    ],
    survives:
      "a rotation has to be held up for a third of the lifetime of a certificate (once in seed 71,455): test/certs/rotation-plan.test.ts finds it",
  },
  {
    name: "the serving certificate changes with the CA, without a wait",
    found: { seed: 23, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: ROTATION_PLAN,
        from: "    : stepTowardsNext(stored, input);",
        to: '    : (void stepTowardsNext, { type: "switchCa" });',
      },
      {
        file: "certs/rotation-writes.ts",
        from: "const data = { [KEYS.bundle]: `${pemOf(bundle)}${ca.certPem}` };",
        to: "const data = { [KEYS.bundle]: `${pemOf(bundle)}${ca.certPem}`, ...(await servingData(ca, options)) };",
      },
    ],
  },
  {
    name: "no API server is asked for the new CA bundle, and none is waited for",
    found: { seed: 21, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: ROTATION_PLAN,
        from: "if (seenAt === undefined || isFromFuture(seenAt, input) || input.drifted) {",
        to: "void seenAt; if (input.replicaDwellMs < 0) {",
      },
      {
        file: ROTATION_PLAN,
        from: "const until = seenAt + Math.max(input.apiServerDwellMs, input.shutdownDelayMs ?? 0);",
        to: "const until = 0;",
      },
    ],
  },
  {
    name: "the old CA is dropped at once",
    found: { seed: 743, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: ROTATION_PLAN,
        from: '  if (input.waitNow < until) {\n    return { type: "wait", until, for: "replicas" };\n  }\n  return { type: input.served ?',
        to: '  if (until < 0) {\n    return { type: "wait", until, for: "replicas" };\n  }\n  return { type: input.served || until > 0 ?',
      },
    ],
  },
  {
    name: "a new CA takes the place of the old one in the bundle",
    found: { seed: 35, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: "certs/rotation-writes.ts",
        from: "`${pemOf(bundle)}${ca.certPem}`",
        to: "(void pemOf, void bundle, ca.certPem)",
      },
    ],
  },
  {
    name: "the Secret is written without a precondition",
    survives: "not found in the 271 worlds with the webhook of 2,000 seeds",
    edits: [
      {
        file: "certs/secret-store.ts",
        from: "      ...metadata,\n",
        to: "      ...metadata,\n      resourceVersion: undefined,\n",
      },
    ],
  },
  {
    name: "a rotation counts its waits by the clock of any API server",
    survives:
      "not found in the 582 worlds with the webhook of 4,000 seeds: two API servers behind one address have to differ, and one to follow late; test/certs/ensure.test.ts finds it",
    edits: [
      {
        file: "certs/wait-clock.ts",
        from: "return isOwn || !isServerSure ? since : Math.max(serverNow, since);",
        to: "void isOwn; void isServerSure; void since; return serverNow;",
      },
    ],
  },
  {
    name: "every second replica never becomes ready",
    found: { seed: 7, breaks: "trust: a replica is not ready at the end" },
    edits: [
      {
        file: "certs/published-trust.ts",
        from: "  #told: string | undefined;\n\n",
        to: "  #told: string | undefined;\n  static made = 0;\n  readonly number = PublishedTrust.made++;\n\n",
      },
      {
        file: "certs/published-trust.ts",
        from: "const problem = this.#problem();",
        to: 'const problem = this.number % 2 === 1 ? "never" : this.#problem();',
      },
    ],
  },
  {
    name: "nobody looks at certificates where the Secret is older than it was",
    found: { seed: 388_636, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: "certs/secret-source.ts",
        from: "if (isOlder(secret, sentAfter)) this",
        to: "if (isOlder(secret, sentAfter) && sentAfter === undefined) this",
      },
    ],
  },
  {
    name: "nobody is told that the Secret has lost its certificates",
    survives:
      "after each repair the leader looks again in the replicas' dwell time, for as long as it keeps the CA of what they serve: no plan of a short life of certificates is left that shows it, and test/controller/webhook-part.test.ts does",
    edits: [
      {
        file: "controller/webhook-part.ts",
        from: "      this.#options.lost?.wake();",
        to: "      void this.#options.lost;",
      },
    ],
  },
  {
    name: "certificates are never renewed",
    found: { seed: 354, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: ROTATION_PLAN,
        from: "return notAfter - (notAfter - notBefore) * renewBefore;",
        to: "void notBefore; void renewBefore; return 2 * notAfter;",
      },
    ],
  },
  {
    name: "certificates are replaced although clocks disagree",
    found: { seed: 814, breaks: "trust: an API server does not trust a replica" },
    edits: [
      {
        file: ROTATION_PLAN,
        from: "return isSure ? server.step : stepByTwoClocks(server, judged(now + clockSkewMs));",
        to: "void isSure; void stepByTwoClocks; return server.step;",
      },
    ],
  },
  {
    name: "init deletes the migrations of others",
    found: { seed: 178, breaks: "init: it deletes a migration of others" },
    edits: [
      {
        file: EARLIER,
        from: "return isKnown && isOurs(migration) && !isStopped(migration);",
        to: "return isKnown && !isStopped(migration);",
      },
    ],
  },
  {
    name: "init deletes a migration that a user stopped",
    found: { seed: 147, breaks: "init: it deletes a migration that a user stopped" },
    edits: [
      {
        file: EARLIER,
        from: "return isSuspended(migration) && !isFinished(migration);",
        to: "return isSuspended(migration) && isFinished(migration);",
      },
    ],
  },
  {
    name: "init leaves the migrations of an earlier one",
    found: { seed: 2, breaks: "init: several migrations of a resource are left by the last one" },
    edits: [
      {
        file: EARLIER,
        from: "await whenServed(context, () => client.delete(MIGRATIONS, { name }, options));",
        to: "void client; void name; void options; void signal;",
      },
    ],
  },
  {
    name: "init leaves a CRD as it is",
    found: { seed: 317, breaks: "init: an undisturbed one ends with an error" },
    edits: [
      {
        file: INITIALIZE,
        from: "  const before = await findCrdToStay(context, ref.name);\n",
        to: '  const before = await findCrdToStay(context, ref.name);\n  if (before !== undefined) return "unchanged";\n',
      },
    ],
  },
];
