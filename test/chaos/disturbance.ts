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
  /** It never arrives: something in between answers. */
  | { readonly kind: "answer"; readonly status: 429 | 500 | 503; readonly retryAfter?: number };

export const UNDISTURBED: Disturbance = { kind: "none" };

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
