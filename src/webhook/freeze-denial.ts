import { FREEZE_REASON, MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../api/names.ts";

/** What a denial names. */
export interface DenialFacts {
  readonly crdName: string;
  /** The storage version before the update; several are separated by commas. */
  readonly oldStorage: string;
  /** The storage version that the update asks for. */
  readonly newStorage: string;
}

/** Which mark froze the CRD. It decides how the freeze can be lifted. */
export type FreezeMark = "annotation" | "condition";

const DENIED =
  `${FREEZE_REASON}: cannot change the storage version of CustomResourceDefinition "{crdName}" ` +
  'from "{oldStorage}" to "{newStorage}" while its objects are being migrated; ';

/**
 * The words of every denial, the one place where they stand, each of the {@link DenialFacts} as its field name in
 * braces: the webhook fills them in here, the policy in CEL. They are one line, as a policy's message must be, and begin
 * with {@link FREEZE_REASON}, by which the proof of the freeze knows them.
 */
export const DENIAL_TEMPLATES: Readonly<Record<FreezeMark, string>> = {
  annotation:
    `${DENIED}wait until the migration ends and takes the annotation ${MIGRATING_ANNOTATION} off ` +
    `(kubectl get crd {crdName} -o yaml shows it, and who migrates in ${OWNER_ANNOTATION}), or stop the migration, ` +
    "which then leaves status.storedVersions unpruned, with: " +
    `kubectl annotate crd {crdName} ${MIGRATING_ANNOTATION}-`,
  condition:
    `${DENIED}wait until the migration by kube-controller-manager ends (kubectl get storageversionmigrations) and the condition ` +
    `${STORAGE_MIGRATING_CONDITION} (kubectl get crd {crdName} -o yaml shows it) is no longer "True"; if no migration ` +
    "runs that explains it, take it out of status.conditions with: kubectl edit crd {crdName} --subresource=status",
};

/** A sentence for a user whose update is denied: one line, beginning with {@link FREEZE_REASON}. */
export function denialMessage(mark: FreezeMark, facts: DenialFacts): string {
  return denialParts(mark)
    .map((part) => ("fact" in part ? facts[part.fact] : part.text))
    .join("");
}

/** A sentence cut at its facts, to be put together again in another language. */
export function denialParts(
  mark: FreezeMark,
): readonly ({ readonly text: string } | { readonly fact: keyof DenialFacts })[] {
  return DENIAL_TEMPLATES[mark]
    .split(/(\{\w+\})/)
    .filter((part) => part !== "")
    .map((part) => (isFact(part) ? { fact: part.slice(1, -1) as keyof DenialFacts } : { text: part }));
}

function isFact(part: string): boolean {
  return part.startsWith("{");
}
