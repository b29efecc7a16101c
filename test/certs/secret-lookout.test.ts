import tap from "tap";
import { issueCa } from "../../src/certs/issue.ts";
import { lookForLoss } from "../../src/certs/secret-lookout.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { ManualClock } from "../manual-clock.ts";

const HALF_A_MINUTE = 30_000;
const { certPem } = await issueCa({ now: new Date(), lifetimeMs: 86_400_000 });

/** What an API server answers about the Secret: its data and its resourceVersion, or a status. */
type Answer = { readonly ca: string; readonly resourceVersion: string } | 404 | 503;

const FULL: Answer = { ca: certPem, resourceVersion: "9" };

/** Looks at a Secret that is as the test says. */
function looking() {
  const [clock, stop, seen] = [new ManualClock(), new AbortController(), { looks: 0, wakes: 0 }];
  let answer: Answer = FULL;
  const request = async ({ method, path }: ApiRequest): Promise<unknown> => {
    seen.looks++;
    if (typeof answer === "number") {
      const reason = answer === 404 ? "NotFound" : "ServiceUnavailable";
      throw new ApiError(`${method} ${path}`, answer, { answer: { kind: "Status", reason, details: { name: "tls" } } });
    }
    const { ca, resourceVersion } = answer;
    const body = { metadata: { namespace: "ns", name: "tls", resourceVersion }, data: { "ca.crt": btoa(ca) } };
    return { status: 200, body, serverTime: clock.now() };
  };
  const client = new ApiClient({ server: "https://a", request } as unknown as Transport);
  const ref = { namespace: "ns", name: "tls" };
  const ended = lookForLoss({ client, clock, ref, lost: { wake: () => seen.wakes++ }, signal: stop.signal });
  const end = async (): Promise<void> => {
    stop.abort(new Error("seen enough"));
    await ended;
  };
  return { clock, seen, end, answers: (next: Answer) => void (answer = next) };
}

await tap.test("lookForLoss() looks twice a minute, and wakes nobody while the Secret has its CA", async (t) => {
  const { clock, end, seen } = looking();
  await clock.advance(20 * HALF_A_MINUTE);
  t.same(seen, { looks: 20, wakes: 0 });
  await end();
});

const losses: readonly [what: string, answer: Answer, wakes: number][] = [
  ["is gone", 404, 1],
  ["was emptied", { ca: "", resourceVersion: "10" }, 1],
  ["is older than it was", { ...FULL, resourceVersion: "8" }, 1],
  ["was written", { ...FULL, resourceVersion: "10" }, 0],
  ["cannot be read", 503, 0],
];

for (const [what, answer, wakes] of losses) {
  await tap.test(
    `lookForLoss() ${wakes > 0 ? "wakes" : "does not wake"} the keeper where the Secret ${what}`,
    async (t) => {
      const { answers, clock, end, seen } = looking();
      await clock.advance(2 * HALF_A_MINUTE);
      answers(answer);
      await clock.advance(HALF_A_MINUTE);
      t.equal(seen.wakes, wakes);
      answers({ ...FULL, resourceVersion: "11" });
      await clock.advance(4 * HALF_A_MINUTE);
      t.equal(seen.wakes, wakes, "once it is as it should be, it is left alone");
      await end();
    },
  );
}
