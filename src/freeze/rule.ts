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
/**
 * The condition by which Kubernetes' own migrator marks a migration under way.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go
 */
export const STORAGE_MIGRATING = "StorageMigrating";
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

/** What froze a CRD. It decides how the freeze can be lifted. */
export type FreezeMark = "annotation" | "condition";

/** What froze the storage version of a CRD; `undefined` where it may change. */
export function freezeMark({ metadata, status }: Pick<Crd, "metadata" | "status">): FreezeMark | undefined {
  if (Object.hasOwn(metadata.annotations ?? {}, MIGRATING)) return "annotation";
  // The API server keeps null where conditions were cleared through /status.
  const isMigrating = (status?.conditions ?? []).some((one) => one.type === STORAGE_MIGRATING && one.status === "True");
  return isMigrating ? "condition" : undefined;
}

/** A storage change of a frozen CRD, with a message for the user. */
export interface FreezeDenial {
  readonly mark: FreezeMark;
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
  const mark = freezeMark(oldCrd);
  const [before, after] = [storageVersions(oldCrd), storageVersions(newCrd)];
  const isSame = before.every((name) => after.includes(name)) && after.every((name) => before.includes(name));
  if (mark === undefined || isSame) return undefined;
  const facts = { name: oldCrd.metadata.name, oldStorage: before.join(", "), newStorage: after.join(", ") };
  const sentence = DENIALS[mark].map((part) => (typeof part === "string" ? part : facts[part.fact])).join("");
  // On one line, whatever an annotation holds.
  const clauses = besides.map((text) => text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").slice(0, 300));
  const { newStorage, oldStorage } = facts;
  return { mark, message: [sentence, ...clauses].join("; "), oldStorage, newStorage };
}

/** A valid CRD has exactly one. The whole set is compared, so that an invalid object never slips past the rule. */
export function storageVersions({ spec }: Crd): readonly string[] {
  return spec.versions.flatMap(({ name, storage }) => (storage ? [name] : [])).toSorted();
}

type DenialPart = string | { readonly fact: "name" | "oldStorage" | "newStorage" };

const name = { fact: "name" } as const;
const DENIED: readonly DenialPart[] = [
  `${FREEZE_REASON}: cannot change the storage version of CustomResourceDefinition "`,
  name,
  '" from "',
  { fact: "oldStorage" },
  '" to "',
  { fact: "newStorage" },
  '" while its objects are being migrated; ',
];

/** The words of every denial. The webhook fills the facts in here, the policy in CEL. */
const DENIALS: Readonly<Record<FreezeMark, readonly DenialPart[]>> = {
  annotation: [
    ...DENIED,
    `wait until the migration ends and takes the annotation ${MIGRATING} off ("ksvm status `,
    name,
    `" shows how far it is, the annotation ${OWNER} who migrates), or stop the migration, which then leaves ` +
      'status.storedVersions unpruned, with "ksvm unfreeze ',
    name,
    '" or "kubectl annotate crd ',
    name,
    ` ${MIGRATING}-"`,
  ],
  condition: [
    ...DENIED,
    `wait until the migration by kube-controller-manager ends and the condition ${STORAGE_MIGRATING} is no longer "True" ` +
      '("ksvm status ',
    name,
    '" shows both); if no migration explains it, take it out of status.conditions with "ksvm unfreeze ',
    name,
    '" or "kubectl edit crd ',
    name,
    ' --subresource=status"',
  ],
};

// In CEL. The API server evaluates it on typed objects: `spec.versions[*].storage` is always there, while annotations,
// status and conditions may be missing, and conditions are null until the first one is written.

const HAS_ANNOTATION = `(has(oldObject.metadata.annotations) && "${MIGRATING}" in oldObject.metadata.annotations)`;
const HAS_CONDITION =
  "(has(oldObject.status) && has(oldObject.status.conditions) && oldObject.status.conditions != null && " +
  `oldObject.status.conditions.exists(condition, condition.type == "${STORAGE_MIGRATING}" && condition.status == "True"))`;

/** Whether the old object is frozen. */
export const FROZEN_CEL = `${HAS_ANNOTATION} || ${HAS_CONDITION}`;

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

/** The denial of {@link freezeVerdict} as a CEL expression. */
export const MESSAGE_CEL = `${HAS_ANNOTATION} ? ${messageCel("annotation")} : ${messageCel("condition")}`;

function messageCel(mark: FreezeMark): string {
  const storage = 'spec.versions.filter(version, version.storage).map(version, version.name).join(", ")';
  const facts = {
    name: "oldObject.metadata.name",
    oldStorage: `oldObject.${storage}`,
    newStorage: `object.${storage}`,
  };
  // A JSON string is a CEL string too.
  return DENIALS[mark].map((part) => (typeof part === "string" ? JSON.stringify(part) : facts[part.fact])).join(" + ");
}

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
