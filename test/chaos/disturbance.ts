import { between, pick, type Random } from "./random.ts";

/** What happens to one request on its way. */
export type Disturbance =
  | { readonly kind: "none" }
  /** The connection breaks before the request arrives. */
  | { readonly kind: "reset" }
  /** The request arrives and takes effect; the connection breaks before the answer. */
  | { readonly kind: "lost-answer" }
  /** Half of the first bytes of the answer arrive, then the connection breaks. */
  | { readonly kind: "truncate" }
  | { readonly kind: "delay"; readonly ms: number }
  /** It never arrives: something in between answers, with a line of text, or with a page. */
  | {
      readonly kind: "answer";
      readonly status: 200 | 404 | 429 | 500 | 503;
      readonly retryAfter?: number;
      readonly isHtml?: boolean;
    };

export const UNDISTURBED: Disturbance = { kind: "none" };

/** What load balancers, gateways and login pages say in place of an API server. */
const ANSWERS: readonly [Disturbance, ...Disturbance[]] = [
  { kind: "answer", status: 404 },
  { kind: "answer", status: 404, isHtml: true },
  { kind: "answer", status: 429 },
  { kind: "answer", status: 429, retryAfter: 1 },
  { kind: "answer", status: 503 },
  { kind: "answer", status: 503, isHtml: true },
  { kind: "answer", status: 200, isHtml: true },
];

const KINDS = ["reset", "lost-answer", "truncate", "delay", "429", "500", "503"] as const;

/** Disturbs this share of the requests, in all ways alike. */
export function disturbanceBy(random: Random, share: number): Disturbance {
  if (random() >= share) return UNDISTURBED;
  const kind = pick(random, KINDS);
  switch (kind) {
    case "delay":
      return { kind, ms: between(random, 50, 2_000) };
    case "429":
      return { kind: "answer", status: 429, retryAfter: 1 };
    case "500":
      return { kind: "answer", status: 500 };
    case "503":
      return { kind: "answer", status: 503 };
    default:
      return { kind };
  }
}

/** Answers this share of the requests with 404, 429, 503 or a page, all alike. */
export function answerBy(random: Random, share: number): Disturbance {
  return random() < share ? pick(random, ANSWERS) : UNDISTURBED;
}

/** What it is counted as. */
export function wordsFor(disturbance: Disturbance): string {
  return disturbance.kind === "answer"
    ? `${disturbance.status}${disturbance.isHtml === true ? " HTML" : ""}`
    : disturbance.kind;
}
