import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { lastingOf } from "./choices.ts";

/** What something between ksvm and the API servers does to a share of the requests, for some time. */
export const disturb = sort<{ readonly how: string; readonly share: number; readonly ms: number }>({
  name: "disturb",
  weight: 2,
  choose: (random) => ({
    how: oneOf(random, ["reset", "reset", "lost", "404", "429", "503", "html"]),
    share: spread(random, 0.01, 1),
    ms: lastingOf(random),
  }),
  text({ how, share }) {
    const deed =
      {
        reset: "are reset before they arrive",
        lost: "are applied and get no answer",
        html: "are answered with an error as a page of HTML",
        empty: "are answered with {} and 200",
      }[how] ?? `are answered with ${how}`;
    return `${share >= 0.01 ? (share * 100).toFixed(0) : (share * 100).toFixed(2)} % of the requests of ksvm ${deed}`;
  },
  play({ cluster, schedule, streams }, { how, share, ms }) {
    const random = streams("balancer");
    const before = cluster.interference;
    cluster.interference = (user, request) => {
      const earlier = before(user, request);
      if (earlier !== undefined) return earlier;
      if (!user.startsWith("ksvm") || !oneIn(random, 1 / share)) return undefined;
      if (how === "reset" || how === "lost") return how;
      if (how === "empty") return { status: 200, body: {} };
      if (how === "html") return { status: oneOf(random, [403, 404, 502, 503]), html: true };
      return { status: Number(how) };
    };
    schedule.in(ms, () => (cluster.interference = before));
  },
});
