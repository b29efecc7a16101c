import tap from "tap";
import { identityOf } from "../model/identity-leases.ts";
import type { Plan } from "../plan.ts";
import { startProgram } from "../programs/all-programs.ts";
import { SETTINGS } from "../programs/migrate-program.ts";
import { simulate } from "../simulate.ts";
import { World } from "../world/world.ts";
import { actionSort } from "./all-actions.ts";

const DELAY_MS = 20_000;
const PLAN: Plan = {
  seed: 7,
  servers: 2,
  access: "each",
  kinds: [{ plural: "widgets", versions: ["v1alpha1", "v1"], createdIn: "v1alpha1", objects: 1 }],
  programs: [{ run: "migrate", kind: 0, force: false }],
  shutdownDelayMs: DELAY_MS,
  writeEveryMs: 60_000,
  actions: [],
};
const LEAVE = { server: 1, delayMs: DELAY_MS, backMs: 5_000, ms: 85_000 };

await tap.test(
  "an API server that leaves takes requests without an identity Lease, and ends once they are done",
  async (t) => {
    const world = new World({ plan: PLAN, settings: SETTINGS, startProgram });
    const { cluster, schedule } = world;
    const key = `/registry/leases/kube-system/${identityOf("server-1")}`;
    const [node] = cluster.nodes.slice(1);
    const version = {
      method: "GET",
      path: "/version",
      query: new URLSearchParams(),
      headers: {},
      body: "",
      user: "user",
    };
    const seen: string[] = [];
    const look = (at: number): void => {
      schedule.in(at, () => {
        const lease = cluster.etcd.get(key) === undefined ? "no Lease" : "a Lease";
        const one = cluster.nodes.find(({ url }) => url === node?.url);
        const which = one === node ? "it" : "another one";
        seen.push(`${lease}, ${one === undefined ? "nothing" : which} takes requests`);
      });
    };
    schedule.in(1_000, () => void actionSort("leave").play(world, { at: 0, ...LEAVE }));
    // One that is under way when it takes its last request.
    schedule.in(20_900, () => {
      node?.slow(1_000, 60_000);
      void node?.handle(version);
    });
    for (const at of [500, 1_500, 12_000, 20_999, 21_500]) look(at);
    await schedule.run(() => node?.process.isAlive === false, 90_000);
    const endedAt = schedule.now;
    t.ok(endedAt > 21_000 && endedAt <= 81_001, `it ended after ${endedAt} ms`);
    look(4_900);
    look(5_100);
    await schedule.run(() => false, 10_000);
    await schedule.end();
    t.same(seen, [
      "a Lease, it takes requests",
      "no Lease, it takes requests",
      "no Lease, it takes requests",
      "no Lease, it takes requests",
      "no Lease, nothing takes requests",
      "no Lease, nothing takes requests",
      "a Lease, another one takes requests",
    ]);
  },
);

/** When programs began, and when the API server began to end, in seconds. */
async function timesOf(actions: readonly object[]): Promise<Record<"started" | "left", number | undefined>> {
  const { trace, violations } = await simulate({ ...PLAN, actions: actions as Plan["actions"] });
  if (violations.length > 0) throw new Error(violations[0]);
  const atOf = (text: string): number | undefined => {
    const line = trace.find((told) => told.includes(text));
    return line === undefined ? undefined : Number(line.trimStart().split(" ")[0]);
  };
  return { started: atOf(" ksvm-0-0: "), left: atOf("begins to end") };
}

await tap.test(
  "a run that freezes starts once an API server that is late has ended: it could not know of it",
  async (t) => {
    const late = { at: 10, do: "lag", server: 1, of: "crds", byMs: 300_000 };
    const rest = [
      { at: 2_000, do: "leave", ...LEAVE },
      { at: 3_000, do: "start", program: 0 },
    ];
    const prompt = await timesOf(rest);
    t.match(prompt, { left: 2 });
    t.ok((prompt.started ?? 99) < 4, `with one that is not late it starts after ${prompt.started} s`);
    const { started = 0 } = await timesOf([late, ...rest]);
    t.ok(started >= 22 && started < 90, `with one that is late it starts after ${started} s`);
  },
);
