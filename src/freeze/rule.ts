import { KsvmError } from "../errors.ts";
import type { Crd } from "../kube/objects.ts";

/*
 * The freeze rule: an update of a CRD is denied where the old object is frozen and the set of storage versions differs.
 * The old object decides, so lifting the freeze and changing the storage version takes two updates: nobody does both by
 * accident. The rule is here three times: in TypeScript for the webhook, and in CEL for its matchConditions and for
 * the policy. The contract test holds all three to the same cases on a real API server.
 *
 * KEP-2855, "Proposed Admission Webhook".
 */

/** The annotation that freezes the storage version of a CRD, whatever its value. */
export const MIGRATING = "ksvm.sigs.k8s.io/migrating";
/** The value that a run gives it. */
export const MIGRATING_VALUE = "true";
/** Who froze the CRD. */
export const OWNER = "ksvm.sigs.k8s.io/migration-owner";
/** Every denial begins with it, after the guard's name. By both a proof knows that it was our guard. */
export const FREEZE_REASON = "StorageVersionFrozen";
/** The ValidatingWebhookConfiguration and its one webhook (KEP-2855). */
export const WEBHOOK_NAME = "crd.kube-storage-version-migrator.io";

/** What enforces a freeze, and the name by which the API server reports its denials. */
export interface Guard {
  readonly kind: "webhook" | "policy";
  readonly name: string;
}

/** The field manager of every write to a CRD. It never owns a field of `spec`, so it moves no settle time. */
export const CRD_FIELD_MANAGER = "ksvm-freeze";

/** Another client took the freeze off. No run puts it back: that is how a user stops a migration. */
export function freezeLifted(crdName: string): KsvmError {
  const text = "another client lifted the freeze of its storage version; nothing was pruned";
  return new KsvmError("FreezeLifted", `Cannot continue with "${crdName}": ${text}`);
}

/** A storage change of a frozen CRD, with a message for the user. */
export interface FreezeDenial {
  readonly message: string;
  /** Several are separated by commas. */
  readonly oldStorage: string;
  readonly newStorage: string;
}

/**
 * The verdict on an update of a CRD.
 * @param besides what else a denial can tell, such as how far the migration is
 * @returns `undefined` where it may go through
 */
export function freezeVerdict(oldCrd: Crd, newCrd: Crd, besides: readonly string[] = []): FreezeDenial | undefined {
  const isFrozen = Object.hasOwn(oldCrd.metadata.annotations ?? {}, MIGRATING);
  const [before, after] = [storageVersions(oldCrd), storageVersions(newCrd)];
  const isSame = before.every((name) => after.includes(name)) && after.every((name) => before.includes(name));
  if (!isFrozen || isSame) return undefined;
  const facts = { name: oldCrd.metadata.name, oldStorage: before.join(", "), newStorage: after.join(", ") };
  const sentence = DENIAL.map((part) => (typeof part === "string" ? part : facts[part.fact])).join("");
  // On one line, whatever an annotation holds.
  const clauses = besides.map((text) => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").slice(0, 300));
  const { newStorage, oldStorage } = facts;
  return { message: [sentence, ...clauses].join("; "), oldStorage, newStorage };
}

/** A valid CRD has exactly one. The whole set is compared, so that an invalid object never slips past the rule. */
export function storageVersions({ spec }: Crd): readonly string[] {
  return spec.versions.flatMap(({ name, storage }) => (storage ? [name] : [])).toSorted();
}

type DenialPart = string | { readonly fact: "name" | "oldStorage" | "newStorage" };

const name = { fact: "name" } as const;
/** The words of every denial. The webhook fills the facts in here, the policy in CEL. */
const DENIAL: readonly DenialPart[] = [
  `${FREEZE_REASON}: cannot change the storage version of CustomResourceDefinition "`,
  name,
  '" from "',
  { fact: "oldStorage" },
  '" to "',
  { fact: "newStorage" },
  '" while its objects are being migrated; ' +
    `wait until the migration ends and takes the annotation ${MIGRATING} off ("ksvm status `,
  name,
  `" shows how far it is, the annotation ${OWNER} who migrates), or stop the migration, which then leaves ` +
    'status.storedVersions unpruned, with "ksvm unfreeze ',
  name,
  '" or "kubectl annotate crd ',
  name,
  ` ${MIGRATING}-"`,
];

// In CEL. The API server evaluates it on typed objects: `spec.versions[*].storage` is always there, while annotations
// may be missing.

/** Whether the old object is frozen. */
export const FROZEN_CEL = `has(oldObject.metadata.annotations) && "${MIGRATING}" in oldObject.metadata.annotations`;

/**
 * Whether the set of storage versions differs. One pass over the versions of each object and one more for each storage
 * version: the cost grows linearly, and stays below the API server's limit for as many versions as a CRD can hold.
 */
export const STORAGE_CHANGED_CEL = [lacks("oldObject", "object"), lacks("object", "oldObject")].join(" || ");

function lacks(object: string, other: string): string {
  const isThere = `${other}.spec.versions.exists(there, there.storage && there.name == here.name)`;
  return `${object}.spec.versions.exists(here, here.storage && !${isThere})`;
}

/** What an update must be for the webhook to be asked: a dead webhook blocks nothing but what it would deny. */
export const MATCH_CONDITIONS = [
  { name: "frozen", expression: FROZEN_CEL },
  { name: "storage-version-changed", expression: STORAGE_CHANGED_CEL },
] as const;

const STORAGE_CEL = 'spec.versions.filter(version, version.storage).map(version, version.name).join(", ")';
const FACTS_CEL = {
  name: "oldObject.metadata.name",
  oldStorage: `oldObject.${STORAGE_CEL}`,
  newStorage: `object.${STORAGE_CEL}`,
};

/** The denial of {@link freezeVerdict} as a CEL expression. A JSON string is a CEL string too. */
export const MESSAGE_CEL = DENIAL.map((part) =>
  typeof part === "string" ? JSON.stringify(part) : FACTS_CEL[part.fact],
).join(" + ");

/** The rule as the `spec` of a ValidatingAdmissionPolicy for one CRD. */
export function policySpec(crdName: string): object {
  return {
    failurePolicy: "Fail",
    matchConstraints: {
      matchPolicy: "Equivalent",
      resourceRules: [
        {
          apiGroups: ["apiextensions.k8s.io"],
          apiVersions: ["v1"],
          operations: ["UPDATE"],
          resources: ["customresourcedefinitions"],
          resourceNames: [crdName],
          scope: "Cluster",
        },
      ],
    },
    // They match only what is frozen, so that a policy that cannot be evaluated blocks nothing else.
    matchConditions: [{ name: "frozen", expression: FROZEN_CEL }],
    validations: [
      {
        expression: `!(${STORAGE_CHANGED_CEL})`,
        reason: "Forbidden",
        // Stands in where the expression below cannot be evaluated.
        message: `${FREEZE_REASON}: cannot change the storage version of "${crdName}" while its objects are being migrated`,
        messageExpression: MESSAGE_CEL,
      },
    ],
  };
}
