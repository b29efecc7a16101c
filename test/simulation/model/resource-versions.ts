import { badRequest, Refusal } from "./answers.ts";

/** What a resourceVersion of a query says. @throws {Refusal} 400 */
export function revisionOf(text: string): number {
  const revision = Number(text);
  if (!Number.isInteger(revision) || revision < 0) {
    throw badRequest(
      `resourceVersion: Invalid value: ${JSON.stringify(text)}: strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax`,
    );
  }
  return revision;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiserver/pkg/storage/errors.go */
export function tooLarge(asked: number, current: number): Refusal {
  return new Refusal({
    code: 504,
    reason: "Timeout",
    details: {
      retryAfterSeconds: 1,
      causes: [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }],
    },
    message: `Timeout: Too large resource version: ${asked}, current: ${current}`,
  });
}
