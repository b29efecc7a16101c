import tap from "tap";
import { MANAGED_BY, MANAGED_BY_LABEL } from "../../src/api/names.ts";
import { issueSelfSigned } from "../../src/certs/self-signed.ts";
import { lookForLoss } from "../../src/certs/secret-lookout.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { ApiError } from "../../src/kube/errors.ts";
import type { ApiRequest } from "../../src/kube/api-request.ts";
import type { Transport } from "../../src/kube/transport.ts";
import { ManualClock } from "../manual-clock.ts";

const HALF_A_MINUTE = 30_000;
// As the clock of the test has it.
const now = new Date("2026-01-01T00:00:00Z");
const issue = (lifetimeMs: number, ...dnsNames: readonly string[]) =>
  issueSelfSigned({
    dnsNames: dnsNames.length > 0 ? dnsNames : ["localhost", "ksvm-webhook.ns.svc"],
    ipAddresses: [],
    now,
    lifetimeMs,
  });
const [kept, other, short, foreign, moved] = await Promise.all([
  issue(86_400_000),
  issue(86_400_000),
  issue(HALF_A_MINUTE),
  issue(86_400_000, "ksvm-webhook.another.svc"),
  issue(86_400_000, "localhost", "ksvm-webhook.another.svc"),
]);

/** What an API server answers about the Secret: its data and its resourceVersion, or a status. */
type Answer = (Partial<typeof kept> & { readonly resourceVersion: string; readonly owner?: string }) | 404 | 503;

const FULL: Answer = { ...kept, resourceVersion: "9" };

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
    const { caPem = "", certPem = "", keyPem = "", owner = MANAGED_BY, resourceVersion } = answer;
    const texts = { "ca.crt": caPem, "tls.crt": certPem, "tls.key": keyPem };
    const data = Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, btoa(text)]));
    const metadata = { namespace: "ns", name: "tls", labels: { [MANAGED_BY_LABEL]: owner }, resourceVersion };
    const body = { type: "Opaque", metadata, data };
    return { status: 200, body, serverTime: clock.now() };
  };
  const client = new ApiClient({ server: "https://a", request } as unknown as Transport);
  const ref = { namespace: "ns", name: "tls" };
  const ended = lookForLoss({
    client,
    clock,
    ref,
    serverName: "localhost",
    lost: { wake: () => seen.wakes++ },
    signal: stop.signal,
  });
  const end = async (): Promise<void> => {
    stop.abort(new Error("seen enough"));
    await ended;
  };
  return { clock, seen, end, answers: (next: Answer) => void (answer = next) };
}

await tap.test("lookForLoss() wakes once for a pair that cannot be served, not at every look", async (t) => {
  const { answers, clock, end, seen } = looking();
  answers({ caPem: kept.caPem, resourceVersion: "9" });
  await clock.advance(20 * HALF_A_MINUTE);
  t.same(seen, { looks: 20, wakes: 1 });
  answers({ caPem: other.caPem, resourceVersion: "10" });
  await clock.advance(20 * HALF_A_MINUTE);
  t.same(seen, { looks: 40, wakes: 2 }, "and once more where it changed");
  await end();
});

await tap.test("lookForLoss() looks twice a minute, and wakes nobody while the Secret has its CA", async (t) => {
  const { clock, end, seen } = looking();
  await clock.advance(20 * HALF_A_MINUTE);
  t.same(seen, { looks: 20, wakes: 0 });
  await end();
});

const losses: readonly [what: string, answer: Answer, wakes: number][] = [
  ["is gone", 404, 1],
  ["was emptied", { resourceVersion: "10" }, 1],
  ["lost its pair", { caPem: kept.caPem, resourceVersion: "10" }, 1],
  ["lost the CA of its pair", { ...kept, caPem: other.caPem, resourceVersion: "10" }, 1],
  ["has a pair that has expired", { ...short, resourceVersion: "10" }, 1],
  ["is that of another installation", { ...foreign, resourceVersion: "10" }, 1],
  ["is that of another namespace that is called by the same host", { ...moved, resourceVersion: "10" }, 1],
  ["lost the pair of another program", { caPem: kept.caPem, owner: "other", resourceVersion: "10" }, 0],
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
