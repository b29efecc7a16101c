import type { Status } from "../../api/meta.ts";
import type { BodyTooLarge } from "./bounded-body.ts";
import { DoubtfulAnswer } from "./errors.ts";
import type { AnswerHeaders } from "./whole-answer.ts";

/**
 * Bytes of an answer that is read whole. Of the largest objects that etcd takes, 1.5 MiB each, the pages of whole objects
 * hold 40; a list of metadata has 100 for each page, of which the annotations may take 256 KiB.
 */
export const MAX_ANSWER_BYTES = 64 * 2 ** 20;

/**
 * The JSON of an answer.
 * @param what was asked, and whom
 * @throws {DoubtfulAnswer} where it is empty: no API server gives such a one, a proxy does, or the answer breaks off before it began; a
 *   SyntaxError where it is no JSON.
 */
export function parsedAnswer(text: string, what: string): unknown {
  if (text === "") {
    throw new DoubtfulAnswer(`Cannot ${what} is empty`);
  }
  return JSON.parse(text);
}

/** What an answer is called that is larger than {@link MAX_ANSWER_BYTES}. */
export function tooLargeAnswer(what: string, error: BodyTooLarge): DoubtfulAnswer {
  const { announcedBytes, limitBytes } = error;
  const size = announcedBytes === undefined ? "goes on" : `has ${announcedBytes} bytes`;
  return new DoubtfulAnswer(`Cannot ${what} ${size}, beyond ${limitBytes} bytes`, error);
}

/** The clock of who answered (`Date` header), in milliseconds since the Unix epoch. */
export function serverTimeOf({ date }: AnswerHeaders): number | undefined {
  const time = typeof date === "string" ? Date.parse(date) : Number.NaN;
  return Number.isNaN(time) ? undefined : time;
}

/** The `metav1.Status` that a text is, if it is one. */
export function statusOf(text: string): Status | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isStatus = typeof value === "object" && value !== null && "kind" in value && value.kind === "Status";
    return isStatus ? (value as Status) : undefined;
  } catch {
    return undefined;
  }
}
