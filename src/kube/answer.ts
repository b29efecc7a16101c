import type { Dispatcher } from "undici";
import type { Status } from "../api/meta.ts";
import { BodyTooLarge, boundedText } from "./bounded-body.ts";
import { DoubtfulAnswer } from "./errors.ts";

/**
 * Bytes of an answer that is read whole. Of the largest objects that etcd takes, 1.5 MiB each, the pages of whole objects
 * hold 40; a list of metadata has 100 for each page, of which the annotations may take 256 KiB.
 */
const MAX_ANSWER_BYTES = 64 * 2 ** 20;

/** An answer, for {@link parsedAnswer}. */
export interface AnswerOptions {
  /** What was asked, and whom. */
  readonly what: string;
  /** Whether the answer may be empty: where a proxy gives such a one, or the answer breaks off before it began, it says nothing. */
  readonly mayBeEmpty: boolean;
}

/**
 * The JSON of an answer that is read whole; `undefined` where it is empty and may be.
 * @throws {DoubtfulAnswer} where it is larger than {@link MAX_ANSWER_BYTES}, or empty and may not be; a SyntaxError where
 *   it is no JSON.
 */
export async function parsedAnswer<T>(
  { body, headers }: Dispatcher.ResponseData,
  { what, mayBeEmpty }: AnswerOptions,
): Promise<T> {
  const announced = Number(headers["content-length"] ?? 0);
  const limit = announced > MAX_ANSWER_BYTES ? 0 : MAX_ANSWER_BYTES;
  try {
    const text = await boundedText(body, limit);
    if (text === "" && !mayBeEmpty) {
      throw new DoubtfulAnswer(`Cannot ${what} is empty`);
    }
    return (text === "" ? undefined : JSON.parse(text)) as T;
  } catch (error) {
    if (!(error instanceof BodyTooLarge)) {
      throw error;
    }
    const size = limit === 0 ? `has ${announced} bytes` : "goes on";
    throw new DoubtfulAnswer(`Cannot ${what} ${size}, beyond ${MAX_ANSWER_BYTES} bytes`, error);
  }
}

/** The clock of who answered (`Date` header), in milliseconds since the Unix epoch. */
export function serverTimeOf(answer: Dispatcher.ResponseData): number | undefined {
  const { date } = answer.headers;
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
