import { oneIn, oneOf, spread } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { kindOf, obstacleLastingOf, programOf } from "./choices.ts";

const HARMS = ["reset", "reset", "lost", "404", "429", "503", "html", "empty", "success", "echo"] as const;
const SUCCESS = JSON.stringify({ kind: "Status", apiVersion: "v1", metadata: {}, status: "Success" });

/** What something between ksvm and the API servers does to a share of the requests, for some time. */
export const disturb = sort<{
  readonly how: string;
  readonly share: number;
  readonly ms: number;
  /** The slot of the only program whose requests it concerns. @default it concerns all */
  readonly program?: number;
}>({
  name: "disturb",
  weight: 2,
  choose: (random, limits) => ({
    how: oneOf(random, HARMS),
    share: spread(random, 0.01, 1),
    ms: obstacleLastingOf(random),
    ...(oneIn(random, 4) ? { program: programOf(random, limits) } : {}),
  }),
  play({ cluster, schedule, streams }, { how, program, share, ms }) {
    const begins = program === undefined ? "ksvm" : `ksvm-${program}-`;
    const random = streams("balancer");
    const end = cluster.interfere((user, request) => {
      if (!user.startsWith(begins) || !oneIn(random, 1 / share)) return undefined;
      if (how === "reset" || how === "lost") return how;
      if (how === "empty") return { status: 200, text: "{}" };
      if (how === "success") return { status: 200, text: SUCCESS };
      if (how === "echo") return { status: 200, text: request?.body || "{}" };
      if (how === "html") return { status: oneOf(random, [403, 404, 502, 503]), html: true };
      return { status: Number(how) };
    });
    schedule.in(ms, end);
  },
});

/**
 * A gateway takes objects out of lists of ksvm, and leaves their metadata as they are, as Teleport does with those that a role denies
 * (lib/kube/proxy/resource_list_streaming.go). No seed has that.
 */
export const leaveOut = sort<{
  readonly kind: number;
  /** The numbers of the objects. */
  readonly objects: readonly number[];
  readonly ms: number;
}>({
  name: "leaveOut",
  suits: () => false,
  choose: (random, limits) => ({ kind: kindOf(random, limits), objects: [0], ms: obstacleLastingOf(random) }),
  play(world, { kind, objects, ms }) {
    const { plural = "" } = world.kindAt(kind) ?? {};
    const left = new Set(objects.map((object) => `${plural}-${object}`));
    const pass = (body: string): string => {
      const { items, ...list } = JSON.parse(body) as { readonly items: readonly Named[] | null };
      return JSON.stringify({ ...list, items: items?.filter(({ metadata }) => !left.has(metadata.name)) ?? null });
    };
    const end = world.cluster.interfere((user, request) => {
      const isList = request?.method === "GET" && request.path.endsWith(`/${plural}`) && !request.query.has("watch");
      return user.startsWith("ksvm") && isList ? { pass } : undefined;
    });
    world.schedule.in(ms, end);
  },
});

interface Named {
  readonly metadata: { readonly name: string };
}
