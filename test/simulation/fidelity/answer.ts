import type { Answer } from "./line.ts";

/** An answer, with the body parsed where it is JSON. */
export function answerOf({ body, headers, status }: Answer & { readonly body: string }): Answer {
  const isJson = headers["content-type"]?.startsWith("application/json") === true;
  return { status, headers, body: isJson ? (JSON.parse(body) as unknown) : body };
}
