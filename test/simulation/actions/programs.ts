import type { DenyRule } from "../model/request-handler.ts";
import type { FalseAnswer } from "../world/cluster.ts";
import { oneIn, oneOf, spread } from "../world/random.ts";
import { jumpOf, lastingOf, obstacleLastingOf, programOf, sort } from "./action.ts";

// What happens to the programs of ksvm, to their requests on the way, and to their rights.

interface OfProgram {
  readonly program: number;
}

/** A program starts; one that runs in its slot crashes before that. */
const start = sort<OfProgram>({
  name: "start",
  choose: (random, limits) => ({ program: programOf(random, limits) }),
  play: (world, { program }) => world.start(program),
});

/** A program ends at this moment. */
const crash = sort<OfProgram>({
  name: "crash",
  choose: (random, limits) => ({ program: programOf(random, limits) }),
  play: (world, { program }) => world.programs[program]?.process.crash(),
});

/** A program stands still and goes on; `suspend` means its machine, with its monotonic clock. */
const standStill = sort<OfProgram & { readonly how: "pause" | "suspend"; readonly ms: number }>({
  name: "standStill",
  choose: (random, limits) => ({
    program: programOf(random, limits),
    how: oneOf(random, ["pause", "suspend"]),
    ms: lastingOf(random),
  }),
  play(world, { program, how, ms }) {
    const goOn = world.programs[program]?.process.stand(how);
    if (goOn) world.schedule.in(ms, goOn);
  },
});

/** The clock of the day jumps for a program. */
const jump = sort<OfProgram & { readonly byMs: number }>({
  name: "jump",
  choose: (random, limits) => ({ program: programOf(random, limits), byMs: jumpOf(random) }),
  play: (world, { program, byMs }) => world.programs[program]?.process.jump(byMs),
});

/** All machines are suspended, as those of a laptop are: their monotonic clocks stand still, and their clocks of the day jump. */
const suspendAll = sort<{ readonly ms: number }>({
  name: "suspendAll",
  choose: (random) => ({ ms: Math.round(spread(random, 1_000, 600_000)) }),
  play({ cluster, programs, schedule }, { ms }) {
    const processes = [
      ...programs.flatMap((program) => program?.process ?? []),
      ...cluster.nodes.map((one) => one.process),
    ];
    const stands = processes.map((process) => process.stand("suspend"));
    schedule.in(ms, () => {
      for (const goOn of stands) goOn();
    });
  },
});

/** A program is told to end, as by SIGTERM; another one starts in its slot some time later, whether it has ended or not. */
const replace = sort<OfProgram & { readonly ms: number }>({
  name: "replace",
  choose: (random, limits) => ({ program: programOf(random, limits), ms: lastingOf(random) }),
  play(world, { program, ms }) {
    world.programs[program]?.interrupt();
    world.schedule.in(ms, () => world.start(program));
  },
});

/** What something between ksvm and the API servers does to a share of the requests, for some time. */
const disturb = sort<{ readonly how: string; readonly share: number; readonly ms: number; readonly program?: number }>({
  name: "disturb",
  weight: 2,
  choose: (random, limits) => ({
    how: oneOf(random, ["reset", "reset", "lost", "429", "503"]),
    share: spread(random, 0.01, 1),
    ms: obstacleLastingOf(random),
    ...(oneIn(random, 4) ? { program: programOf(random, limits) } : {}),
  }),
  play({ cluster, schedule, streams }, { how, program, share, ms }) {
    const begins = program === undefined ? "ksvm" : `ksvm-${program}-`;
    const random = streams("balancer");
    const end = cluster.interfere(({ user }) => {
      if (!user.startsWith(begins) || !oneIn(random, 1 / share)) return undefined;
      return how === "reset" || how === "lost" ? how : { status: Number(how) };
    });
    schedule.in(ms, end);
  },
});

/** What an API server says in its answers as long as priority and fairness decide; a webhook that denies does not say it. */
const FAIRNESS_HEADER = "x-kubernetes-pf-flowschema-uid";

/** API servers, or what stands before them, refuse a share of the requests, and say when the next one is welcome. */
const throttle = sort<{
  readonly status: number;
  readonly retryAfter: string;
  readonly share: number;
  readonly ms: number;
}>({
  name: "throttle",
  choose: (random) => ({
    status: oneOf(random, [429, 429, 503]),
    retryAfter: oneOf(random, ["0", "1", "1", "5", "30", "-5", "1.5", "3600", "99999999999999999999", "", "soon"]),
    share: spread(random, 0.1, 1),
    ms: obstacleLastingOf(random),
  }),
  play({ cluster, schedule, streams }, { status, retryAfter, share, ms }) {
    const seconds = Number(retryAfter);
    const details = Number.isFinite(seconds) && retryAfter !== "" ? { details: { retryAfterSeconds: seconds } } : {};
    const answer: FalseAnswer = {
      status,
      headers: { [FAIRNESS_HEADER]: "1", ...(retryAfter === "" ? {} : { "retry-after": retryAfter }) },
      body: { reason: "TooManyRequests", message: "too many requests, please try again later", ...details },
    };
    const random = streams("overload");
    schedule.in(
      ms,
      cluster.interfere(() => (oneIn(random, 1 / share) ? answer : undefined)),
    );
  },
});

const ADMISSION = "admissionregistration.k8s.io";
const CRDS = { group: "apiextensions.k8s.io", resource: "customresourcedefinitions" };
const LEASES = { group: "coordination.k8s.io", resource: "leases" };

/** What a role may lack: one verb on one resource, as ksvm asks for them. */
const RIGHTS: readonly DenyRule[] = [
  ...["get", "list", "watch", "patch"].map((verb) => ({ ...CRDS, verb })),
  { ...CRDS, subresource: "status", verb: "patch" },
  ...["get", "list", "create", "patch"].map((verb) => ({ ...LEASES, verb })),
  ...["get", "create", "patch", "delete"].flatMap((verb) => [
    { group: ADMISSION, resource: "validatingadmissionpolicies", verb },
    { group: ADMISSION, resource: "validatingadmissionpolicybindings", verb },
  ]),
  { group: ADMISSION, resource: "validatingwebhookconfigurations", verb: "get" },
  ...["list", "patch", "patch"].map((verb) => ({ group: "sim.example.com", verb })),
  { group: "discovery.k8s.io", resource: "endpointslices" },
  { path: "/metrics" },
];

/** A right of ksvm is taken away, and given back after some time. */
const forbid = sort<{ readonly right: DenyRule; readonly ms: number }>({
  name: "forbid",
  choose: (random) => ({ right: oneOf(random, RIGHTS), ms: obstacleLastingOf(random) }),
  play({ cluster, schedule }, { right, ms }) {
    const rule = { ...right, userPrefix: "ksvm" };
    cluster.denied = [...cluster.denied, rule];
    schedule.in(ms, () => {
      cluster.denied = cluster.denied.filter((one) => one !== rule);
    });
  },
});

export const PROGRAM_ACTIONS = [start, crash, standStill, jump, suspendAll, replace, disturb, throttle, forbid];
