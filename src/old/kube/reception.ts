import type { Dispatcher } from "undici";
import { boundedText } from "./bounded-body.ts";
import type { RequestDeadline } from "./request-deadline.ts";
import { type AnswerHeaders, type WholeAnswer, wholeAnswer } from "./whole-answer.ts";

/** The body of an answer that is read as it arrives. */
export type Body = Dispatcher.ResponseData["body"];

/** An answer, of which at least the headers are there. */
export interface Answer {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Buffer | string | Body;
}

/** An answer that is there as a text. */
export interface TextAnswer extends Answer {
  readonly body: string;
}

/** An answer whose body arrives. */
export interface StreamedAnswer extends Answer {
  readonly body: Body;
}

/** A request that is about to be sent. */
export interface Sending {
  readonly dispatcher: Dispatcher;
  readonly request: Dispatcher.RequestOptions;
  readonly deadline: RequestDeadline;
  /** Told of the status as soon as the headers are there. */
  readonly onHeaders: (status: number) => void;
}

/** Sends a request, and receives its answer in one way or another. */
export type Reception<A extends Answer> = (sending: Sending) => Promise<A>;

/** Bytes of an answer that tells an error. A message may quote an object, of which etcd takes 1.5 MiB. */
const MAX_ERROR_BYTES = 4 * 2 ** 20;

/** As a stream, which the caller reads or destroys. */
export async function streamed({ deadline, dispatcher, onHeaders, request }: Sending): Promise<StreamedAnswer> {
  const { body, headers, statusCode } = await dispatcher.request({ ...request, signal: deadline.signal });
  onHeaders(statusCode);
  return { status: statusCode, headers, body };
}

/**
 * Whole, up to so many bytes; an error up to {@link MAX_ERROR_BYTES}.
 * @throws as {@link wholeAnswer}
 */
export function wholeUpTo(limitBytes: number): Reception<WholeAnswer> {
  const limitOf = (status: number): number => (isError(status) ? MAX_ERROR_BYTES : limitBytes);
  return ({ deadline, dispatcher, onHeaders, request }) =>
    wholeAnswer(dispatcher, request, { deadline, onHeaders, limitOf });
}

/** As a text; else like {@link wholeUpTo}. Its bytes are gone then: to parse a large answer takes several times as much. */
export function textUpTo(limitBytes: number): Reception<TextAnswer> {
  const receive = wholeUpTo(limitBytes);
  return async (sending) => {
    const { body, headers, status } = await receive(sending);
    return { status, headers, body: body.toString() };
  };
}

/** Whether the status says that what was asked for was not done: redirects are never followed. */
export function isError(status: number): boolean {
  return status >= 300;
}

/** What an answer says that tells an error. @throws {BodyTooLarge} beyond {@link MAX_ERROR_BYTES} */
export async function errorTextOf({ body }: Answer): Promise<string> {
  if (typeof body === "string") return body;
  return Buffer.isBuffer(body) ? body.toString() : boundedText(body, MAX_ERROR_BYTES);
}
