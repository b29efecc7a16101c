import { FREEZE_REASON, MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../api/names.ts";
import type { FreezeOwner } from "../../api/owner.ts";

/** What every denial names. */
export interface DenialFacts {
  readonly crdName: string;
  /** The storage version before the update; several are separated by commas. */
  readonly oldStorage: string;
  /** The storage version that the update asks for. */
  readonly newStorage: string;
}

/** What only the webhook can name, as far as it is known. */
export interface MigrationFacts {
  /** Who holds the freeze. */
  readonly owner?: FreezeOwner | undefined;
  /** How far the migration is, such as `1200 of about 5000 objects`. */
  readonly progress?: string | undefined;
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
const DENIAL_TEMPLATES: Readonly<Record<FreezeMark, string>> = {
  annotation:
    `${DENIED}wait until the migration ends and takes the annotation ${MIGRATING_ANNOTATION} off ` +
    `("ksvm status {crdName}" shows how far it is, the annotation ${OWNER_ANNOTATION} who migrates), or stop the ` +
    'migration, which then leaves status.storedVersions unpruned, with "ksvm unfreeze {crdName}" or ' +
    `"kubectl annotate crd {crdName} ${MIGRATING_ANNOTATION}-"`,
  condition:
    `${DENIED}wait until the migration by kube-controller-manager ends ` +
    `and the condition ${STORAGE_MIGRATING_CONDITION} is no longer "True" ("ksvm status {crdName}" shows both); if no ` +
    'migration explains it, take it out of status.conditions with "ksvm unfreeze {crdName}" or ' +
    '"kubectl edit crd {crdName} --subresource=status"',
};

const PARTS: Readonly<Record<FreezeMark, readonly DenialPart[]>> = {
  annotation: cut(DENIAL_TEMPLATES.annotation),
  condition: cut(DENIAL_TEMPLATES.condition),
};

/** A longer text of an annotation is cut: a denial is read by a person, and anybody who may edit the CRD can write one. */
const MAX_QUOTED = 200;

/** A sentence for a user whose update is denied: one line, beginning with {@link FREEZE_REASON}. */
export function denialMessage(mark: FreezeMark, facts: DenialFacts, migration: MigrationFacts = {}): string {
  const sentence = denialParts(mark)
    .map((part) => ("fact" in part ? facts[part.fact] : part.text))
    .join("");
  return sentence + migrationClause(migration);
}

/** A part of a sentence: words, or the place of a fact. */
export type DenialPart = { readonly text: string } | { readonly fact: keyof DenialFacts };

/** A sentence cut at its facts, to be put together again in another language. */
export function denialParts(mark: FreezeMark): readonly DenialPart[] {
  return PARTS[mark];
}

function cut(template: string): readonly DenialPart[] {
  return template
    .split(/(\{\w+\})/)
    .filter((part) => part !== "")
    .map((part) => (isFact(part) ? { fact: part.slice(1, -1) as keyof DenialFacts } : { text: part }));
}

function migrationClause({ owner, progress }: MigrationFacts): string {
  const parts = [
    ...(owner === undefined
      ? []
      : [`it is held by ${quoted(owner.lease)}, run ${quoted(owner.identity)}, since ${quoted(owner.since)}`]),
    ...(progress === undefined ? [] : [`so far ${printable(progress)}`]),
  ];
  return parts.length === 0 ? "" : `; ${parts.join("; ")}`;
}

function quoted(text: string): string {
  return `"${printable(text)}"`;
}

/** On one line, whatever the annotation holds. */
function printable(text: string): string {
  return text.replaceAll(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").slice(0, MAX_QUOTED);
}

function isFact(part: string): boolean {
  return part.startsWith("{");
}
