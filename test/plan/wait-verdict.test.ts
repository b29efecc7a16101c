import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import type { MigrationLine } from "../../src/plan/migration-lines.ts";
import { crdVerdictOf, migrationsVerdictOf, successVerdictOf } from "../../src/plan/wait-verdict.ts";
import { crdWith } from "../api/crd-with.ts";

const VERSIONS = { "f:spec": { "f:versions": {} } };
const CHANGED_AT = "2026-01-02T00:00:00Z";
const metadata = {
  creationTimestamp: "2026-01-01T00:00:00Z",
  managedFields: [{ manager: "a", time: CHANGED_AT, fieldsV1: VERSIONS }],
};
const stale = crdWith({ metadata });
const OWNER = formatOwner({ lease: "kube-system/a", identity: "host_1", since: CHANGED_AT });
const frozen = crdWith({
  metadata: { ...metadata, annotations: { [MIGRATING_ANNOTATION]: "true", [OWNER_ANNOTATION]: OWNER } },
});
const clean = crdWith({ metadata, storedVersions: ["v2"] });

function line(state: MigrationLine["state"], more: Partial<MigrationLine> = {}): MigrationLine {
  const created = "2026-01-03T00:00:00Z";
  return { name: "m", resource: "widgets.example.com", controller: "ksvm", state, created, ...more };
}

const ENDED_AT = "2026-01-05T00:00:00Z";

/** Clean, with the condition of Kubernetes' own migrator. */
function cleanSaying(status: string, reason: string): CustomResourceDefinition {
  const conditions = [{ type: STORAGE_MIGRATING_CONDITION, status, reason, lastTransitionTime: ENDED_AT }];
  return { ...clean, status: { ...clean.status, conditions } };
}

/** Where Kubernetes' own migrator failed, and a client wrote storedVersions last. */
function prunedBy(manager: string, time: string): CustomResourceDefinition {
  const crd = cleanSaying("False", "MigrationFailed");
  const fieldsV1 = { "f:status": { "f:storedVersions": {} } };
  const written = { manager, time, subresource: "status", fieldsV1 };
  return { ...crd, metadata: { ...crd.metadata, managedFields: [...(metadata.managedFields ?? []), written] } };
}

const cases: readonly [name: string, given: Parameters<typeof crdVerdictOf>[0], state: string, text: RegExp][] = [
  ["done where storedVersions is clean", { crd: clean, migrations: [] }, "done", /storedVersions is v2 alone/],
  [
    "incomplete where another program called one Succeeded that is to re-encrypt, whatever storedVersions is",
    { crd: clean, migrations: [line("Succeeded", { reencrypts: true })] },
    "incomplete",
    /another migrator than ksvm may have written.*ksvm reencrypt widgets.example.com/,
  ],
  [
    "failed where its end is waited for and one that re-encrypts failed, whatever the one after it did",
    {
      crd: clean,
      isForEnd: true,
      migrations: [
        line("Failed", { reencrypts: true, message: "why" }),
        line("Succeeded", { created: "2026-01-04T00:00:00Z", crd: "uid-1/3", reason: "Migrated" }),
      ],
    },
    "failed",
    /^migrations\/m is Failed: why$/,
  ],
  [
    "done where its end is waited for and one that re-encrypts succeeded",
    { crd: clean, isForEnd: true, migrations: [line("Succeeded", { reencrypts: true, reason: "Reencrypted" })] },
    "done",
    /storedVersions is v2 alone/,
  ],
  [
    "pending where nobody migrates yet",
    { crd: stale, migrations: [] },
    "pending",
    /v1,v2, and no migration is under way/,
  ],
  [
    "pending while a migration is not finished, also where storedVersions is clean",
    { crd: clean, migrations: [line("Succeeded"), line("Waiting", { message: "why" })] },
    "pending",
    /^migrations\/m is Waiting: why$/,
  ],
  ["pending while a run is at work", { crd: frozen, migrations: [] }, "pending", /, and host_1 migrates it$/],
  ["not done because a migration says so", { crd: stale, migrations: [line("Succeeded")] }, "pending", /v1,v2/],
  [
    "failed where the newest one failed",
    { crd: stale, migrations: [line("Failed", { message: "why" })] },
    "failed",
    /Failed: why$/,
  ],
  [
    "incomplete where objects failed",
    { crd: stale, migrations: [line("Failed", { counts: { migrated: 1, skipped: 0, failed: 2 } })] },
    "incomplete",
    /Failed/,
  ],
  [
    "pending where the failure is from before the last change of the versions",
    { crd: stale, migrations: [line("Failed", { created: "2026-01-01T12:00:00Z" })] },
    "pending",
    /no migration is under way/,
  ],
  [
    "pending where a newer one than the failed one ended, and storedVersions is stale again",
    { crd: stale, migrations: [line("Failed"), line("Succeeded", { created: "2026-01-04T00:00:00Z" })] },
    "pending",
    /no migration is under way/,
  ],
  [
    "done where another run cleaned up after a failed one",
    { crd: clean, migrations: [line("Failed")] },
    "done",
    /v2 alone/,
  ],
  [
    "failed where Kubernetes' own migrator failed, although it pruned",
    { crd: clean, migrations: [line("Failed", { controller: "in-tree" })] },
    "failed",
    /Failed/,
  ],
  [
    "failed where Kubernetes' own migrator pruned without a success, and its migration was deleted",
    { crd: cleanSaying("False", "MigrationFailed"), migrations: [] },
    "failed",
    /objects may be stored in v1, .* condition StorageMigrating .* ksvm doctor widgets\.example\.com --repair$/,
  ],
  [
    "pending while Kubernetes' own migrator has pruned and not ended",
    { crd: cleanSaying("True", "MigrationRunning"), migrations: [line("Succeeded", { controller: "in-tree" })] },
    "pending",
    /objects may be stored in v1, .* none has succeeded since/,
  ],
  [
    "failed where Kubernetes' own migrator pruned after a migration that succeeded",
    { crd: cleanSaying("False", "MigrationFailed"), migrations: [line("Succeeded")] },
    "failed",
    /objects may be stored in v1/,
  ],
  [
    "done where one of ours succeeded after Kubernetes' own migrator had pruned",
    {
      crd: cleanSaying("False", "MigrationFailed"),
      migrations: [line("Succeeded", { created: ENDED_AT, crd: "uid-1/3" })],
    },
    "done",
    /v2 alone/,
  ],
  [
    "failed where another migrator than ksvm called one Succeeded after Kubernetes' own migrator had pruned",
    { crd: cleanSaying("False", "MigrationFailed"), migrations: [line("Succeeded", { created: ENDED_AT })] },
    "failed",
    /objects may be stored in v1/,
  ],
  [
    "done where a run of ours pruned after Kubernetes' own migrator had, whose migration is gone",
    { crd: prunedBy("ksvm-freeze", "2026-01-05T00:00:01Z"), migrations: [] },
    "done",
    /v2 alone/,
  ],
  [
    "failed where a run of ours had pruned before",
    { crd: prunedBy("ksvm-freeze", ENDED_AT), migrations: [] },
    "failed",
    /objects may be stored in v1/,
  ],
  [
    "failed where another client pruned after Kubernetes' own migrator had",
    { crd: prunedBy("kubectl-edit", "2026-01-05T00:00:01Z"), migrations: [] },
    "failed",
    /objects may be stored in v1/,
  ],
  [
    "pending while a run of ours rewrites what Kubernetes' own migrator did not",
    {
      crd: { ...cleanSaying("False", "MigrationFailed"), metadata: frozen.metadata },
      migrations: [],
    },
    "pending",
    /objects may be stored in v1/,
  ],
  [
    "done where Kubernetes' own migrator succeeded",
    { crd: cleanSaying("False", "MigrationSucceeded"), migrations: [line("Succeeded", { controller: "in-tree" })] },
    "done",
    /v2 alone/,
  ],
  [
    "incomplete where a re-encryption failed, although storedVersions is clean",
    {
      crd: clean,
      migrations: [line("Failed", { reencrypts: true, counts: { migrated: 1, skipped: 0, failed: 2 } })],
    },
    "incomplete",
    /Failed/,
  ],
  [
    "pending where a named CRD keeps an old version after a run has proven every object",
    { crd: stale, migrations: [line("Succeeded", { crd: "uid-1/3" })] },
    "pending",
    /v1,v2/,
  ],
  [
    "done where the end is waited for, and a run has proven every object of this CRD",
    { crd: stale, isForEnd: true, migrations: [line("Succeeded", { crd: "uid-1/3" })] },
    "done",
    /^migrations\/m is Succeeded; .*storedVersions still lists v1: .*--manage-stored-versions=false/,
  ],
  [
    "incomplete where the end is waited for, and the CRD has changed since",
    { crd: stale, isForEnd: true, migrations: [line("Succeeded", { crd: "uid-1/2" })] },
    "incomplete",
    /the CRD has changed since/,
  ],
  [
    "incomplete where the end is waited for, and another migrator than ksvm wrote it",
    { crd: stale, isForEnd: true, migrations: [line("Succeeded")] },
    "incomplete",
    /another migrator than ksvm may have written that/,
  ],
  [
    "done where the end is waited for, also where a re-encryption ended after the migration",
    {
      crd: stale,
      isForEnd: true,
      migrations: [
        line("Succeeded", { crd: "uid-1/3" }),
        line("Succeeded", { created: "2026-01-04T00:00:00Z", reencrypts: true, reason: "Reencrypted" }),
      ],
    },
    "done",
    /storedVersions still lists v1/,
  ],
  [
    "failed where the end is waited for, and the migration failed before a re-encryption ended",
    {
      crd: stale,
      isForEnd: true,
      migrations: [
        line("Failed", { message: "why" }),
        line("Succeeded", { created: "2026-01-04T00:00:00Z", reencrypts: true, reason: "Reencrypted" }),
      ],
    },
    "failed",
    /Failed: why/,
  ],
  [
    "pending where the end is waited for, and what ended is of other versions, or of Kubernetes' own migrator",
    {
      crd: stale,
      isForEnd: true,
      migrations: [
        line("Succeeded", { crd: "uid-1/3", created: "2026-01-01T12:00:00Z" }),
        line("Succeeded", { controller: "in-tree" }),
      ],
    },
    "pending",
    /v1,v2/,
  ],
  [
    "pending while anything is under way, also where the end is waited for",
    { crd: stale, isForEnd: true, migrations: [line("Succeeded", { crd: "uid-1/3" }), line("Running")] },
    "pending",
    /Running/,
  ],
  ["failed where the CRD is gone", { crd: undefined, migrations: [] }, "failed", /deleted/],
];

for (const [name, given, state, text] of cases) {
  await tap.test(`crdVerdictOf() is ${name}`, (t) => {
    t.match(crdVerdictOf(given), { state, text });
    t.end();
  });
}

await tap.test("migrationsVerdictOf() goes by the newest of several, once all have ended", (t) => {
  const older = { created: "2026-01-01T00:00:00Z" };
  t.match(migrationsVerdictOf([line("Succeeded"), line("Failed", older)]), { state: "done" });
  t.match(migrationsVerdictOf([line("Succeeded", older), line("Failed")]), { state: "failed" });
  t.match(migrationsVerdictOf([line("Succeeded"), line("Running", { ...older, progress: "1/2" })]), {
    state: "pending",
    text: "migrations/m is Running 1/2",
  });
  t.match(migrationsVerdictOf([]), { state: "failed", text: /deleted/ });
  t.end();
});

await tap.test("migrationsVerdictOf() takes the migration that ended last of those created in the same second", (t) => {
  const [sooner, later] = [{ ended: "2026-01-03T00:05:00Z" }, { ended: "2026-01-03T00:09:00Z" }];
  t.match(migrationsVerdictOf([line("Failed", later), line("Succeeded", sooner)]), { state: "failed" });
  t.match(migrationsVerdictOf([line("Failed", sooner), line("Succeeded", later)]), { state: "done" });
  t.end();
});

await tap.test("successVerdictOf() believes no success without a CRD that no run of ksvm has written", (t) => {
  const theirs = /another migrator than ksvm may have written\. .* ksvm migrate widgets\.example\.com --standalone$/;
  for (const reason of ["", "StorageVersionMigrationSucceeded"]) {
    t.match(successVerdictOf(line("Succeeded", { reason }), undefined), { state: "incomplete", text: theirs });
  }
  t.match(successVerdictOf(line("Succeeded"), undefined), { state: "incomplete", text: theirs });
  for (const reason of ["Migrated", "Reencrypted", "NothingToDo"]) {
    t.match(successVerdictOf(line("Succeeded", { reason }), undefined), { state: "done" }, reason);
  }
  t.match(successVerdictOf(line("Succeeded", { controller: "in-tree" }), undefined), { state: "done" });
  const keys = { reencrypts: true } as const;
  t.match(successVerdictOf(line("Succeeded", keys), clean), {
    state: "incomplete",
    text: /ksvm reencrypt widgets\.example\.com$/,
  });
  t.match(successVerdictOf(line("Succeeded", { ...keys, reason: "Reencrypted" }), stale), { state: "done" });
  t.end();
});
