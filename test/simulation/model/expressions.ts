import { type CustomResourceDefinition, storageVersionsOf, storedVersionsOf } from "../../../src/api/crd.ts";
import { MIGRATING_ANNOTATION } from "../../../src/api/names.ts";
import {
  DENIAL_MESSAGE_EXPRESSION,
  FROZEN_EXPRESSION,
  STORAGE_CHANGED_EXPRESSION,
} from "../../../src/freeze/freeze-cel.ts";
import { denialMessage } from "../../../src/freeze/freeze-denial.ts";
import { isFrozen } from "../../../src/freeze/freeze-rule.ts";
import { hasFreezeAnnotation } from "../../../src/api/owner.ts";
import { warnPolicy } from "../../../src/webhook/warn-policy.ts";
import { isSame, type ModelObject } from "./model-object.ts";

/** What an expression sees. */
export interface ExpressionInput {
  readonly object: ModelObject | undefined;
  readonly oldObject: ModelObject | undefined;
  readonly fieldManager: string | undefined;
}

type Evaluation = (input: ExpressionInput) => unknown;

const WARN = warnPolicy().policy.spec as {
  readonly matchConditions: readonly { readonly expression: string }[];
  readonly validations: readonly { readonly expression: string; readonly messageExpression: string }[];
};

/**
 * The CEL expressions that ksvm installs, as functions. That they say the same as the API server makes of them is for
 * test/contract to prove.
 */
const EVALUATIONS = new Map<string, Evaluation>([
  [FROZEN_EXPRESSION, ({ oldObject }) => isFrozen(crdOf(oldObject))],
  [STORAGE_CHANGED_EXPRESSION, isStorageChanged],
  [`!(${STORAGE_CHANGED_EXPRESSION})`, (input) => !isStorageChanged(input)],
  [DENIAL_MESSAGE_EXPRESSION, denialOf],
  [WARN.matchConditions[0]?.expression ?? "", ({ oldObject }) => hasFreezeAnnotation(crdOf(oldObject))],
  [WARN.matchConditions[1]?.expression ?? "", ({ object }) => storedVersionsOf(crdOf(object)).length !== 1],
  [WARN.validations[0]?.expression ?? "", ({ object }) => MIGRATING_ANNOTATION in (object?.metadata.annotations ?? {})],
  ["true", () => true],
  ["false", () => false],
]);

/** Adds an expression, for a hostile policy. */
export function defineExpression(expression: string, evaluation: Evaluation): void {
  EVALUATIONS.set(expression, evaluation);
}

/** @throws {EvaluationError}; {Error} for an expression that the model does not know */
export function evaluate(expression: string, input: ExpressionInput): unknown {
  const evaluation = EVALUATIONS.get(expression);
  if (evaluation === undefined) throw new Error(`The model does not know the expression ${expression}`);
  try {
    return evaluation(input);
  } catch (error) {
    if (!(error instanceof EvaluationError)) throw error;
    throw new EvaluationError(`expression '${expression}' resulted in error: ${error.message}`);
  }
}

function isStorageChanged({ object, oldObject }: ExpressionInput): boolean {
  return !isSame(storageVersionsOf(crdOf(oldObject)), storageVersionsOf(crdOf(object)));
}

function denialOf({ object, oldObject }: ExpressionInput): string {
  const before = crdOf(oldObject);
  return denialMessage(hasFreezeAnnotation(before) ? "annotation" : "condition", {
    crdName: before.metadata.name,
    oldStorage: storageNamesOf(before),
    newStorage: storageNamesOf(crdOf(object)),
  });
}

/** In their order, as CEL has them. */
function storageNamesOf({ spec }: CustomResourceDefinition): string {
  return spec.versions.flatMap(({ name, storage }) => (storage ? [name] : [])).join(", ");
}

/** An expression that reads a field of an object that is not there: that of a deletion, or the old one of a creation. */
export class EvaluationError extends Error {}

/** @throws {EvaluationError} where there is none */
function crdOf(object: ModelObject | undefined): CustomResourceDefinition {
  if (object === undefined) throw new EvaluationError("no such key: spec");
  return object as unknown as CustomResourceDefinition;
}
