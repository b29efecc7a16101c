import type { Dispatcher } from "undici";
import { BodyTooLarge } from "./bounded-body.ts";
import { CollectedBytes } from "./collected-bytes.ts";
import type { RequestDeadline } from "./request-deadline.ts";

/** The headers of an answer, their names in lower case. */
export type AnswerHeaders = Dispatcher.ResponseData["headers"];

/** An answer that was read to its end. */
export interface WholeAnswer {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly body: Buffer;
}

/** How an answer is read. */
export interface WholeAnswerOptions {
  /** Once it is over, the connection is given up. */
  readonly deadline: RequestDeadline;
  /** The most bytes that an answer with this status may have. */
  readonly limitOf: (status: number) => number;
  /** Told of the status as soon as the headers are there. */
  readonly onHeaders: (status: number) => void;
}

/**
 * Sends a request and reads its answer whole. `undici.request` makes a stream of each answer: for most of them that takes longer than
 * all else that is done for one.
 * @throws {BodyTooLarge} where the headers announce more bytes than the limit, or more of them come.
 * @throws the reason of the deadline; what broke the connection
 */
export function wholeAnswer(
  dispatcher: Dispatcher,
  request: Dispatcher.DispatchOptions,
  options: WholeAnswerOptions,
): Promise<WholeAnswer> {
  return new Promise((resolve, reject) => {
    dispatcher.dispatch(request, new Collector(options, resolve, reject));
  });
}

/** 204 No Content and 304 Not Modified. */
const BODILESS: ReadonlySet<number> = new Set([204, 304]);

/** Keeps what comes of one answer. */
class Collector implements Dispatcher.DispatchHandler {
  readonly #options: WholeAnswerOptions;
  readonly #resolve: (answer: WholeAnswer) => void;
  readonly #reject: (error: Error) => void;
  #status = 0;
  #headers: AnswerHeaders = {};
  #limit = 0;
  readonly #body = new CollectedBytes();

  constructor(options: WholeAnswerOptions, resolve: (answer: WholeAnswer) => void, reject: (error: Error) => void) {
    this.#options = options;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#options.deadline.whenOver((reason) => controller.abort(reason));
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: AnswerHeaders): void {
    // 100 to 199 come before the answer.
    if (status < 200) return;
    this.#status = status;
    this.#headers = headers;
    this.#limit = this.#options.limitOf(status);
    this.#options.onHeaders(status);
    // Where there can be no body, it says how long one would be.
    const announced = BODILESS.has(status) ? 0 : Number(headers["content-length"] ?? 0);
    if (announced > this.#limit) controller.abort(new BodyTooLarge(this.#limit, announced));
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#body.size + chunk.length > this.#limit) {
      this.#body.drop();
      controller.abort(new BodyTooLarge(this.#limit));
    } else {
      this.#body.add(chunk);
    }
  }

  onResponseEnd(): void {
    // The connection knows this handler until its next request: the body must not stay with it.
    this.#resolve({ status: this.#status, headers: this.#headers, body: this.#body.take() });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#body.drop();
    this.#reject(error);
  }
}
