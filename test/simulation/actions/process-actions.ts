import { jumpClock } from "../world/false-expiry.ts";
import { oneOf, spread } from "../world/random-choices.ts";
import { sort } from "./action-sort.ts";
import { jumpOf, lastingOf, programOf } from "./choices.ts";

/** A program starts; one that runs in its slot crashes before that. */
export const start = sort<{ readonly program: number }>({
  name: "start",
  choose: (random, limits) => ({ program: programOf(random, limits) }),
  play: (world, { program }) => world.start(program),
});

/** A program ends at this moment. */
export const crash = sort<{ readonly program: number }>({
  name: "crash",
  choose: (random, limits) => ({ program: programOf(random, limits) }),
  play: (world, { program }) => world.programs[program]?.process.crash(),
});

/** A program stands still and goes on; `suspend` means its machine, with its monotonic clock. */
export const standStill = sort<{ readonly program: number; readonly how: "pause" | "suspend"; readonly ms: number }>({
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
export const jump = sort<{ readonly program: number; readonly byMs: number }>({
  name: "jump",
  choose: (random, limits) => ({ program: programOf(random, limits), byMs: jumpOf(random) }),
  play: (world, { program, byMs }) => jumpClock(world, world.programs[program]?.process, byMs),
});

/** All machines are suspended, as those of a laptop are: their monotonic clocks stand still, and their clocks of the day jump. */
export const suspendAll = sort<{ readonly ms: number }>({
  name: "suspendAll",
  // Certificates end in this time, and nobody renews them.
  suits: ({ lifetimes }) => lifetimes === undefined,
  choose: (random) => ({ ms: Math.round(spread(random, 1_000, 2_400_000)) }),
  play(world, { ms }) {
    const { cluster, programs, schedule } = world;
    // Nobody knows when one would end that is suspended meanwhile.
    cluster.endLeaving();
    const servers = cluster.nodes.map(({ process }) => process);
    const all = [...programs.flatMap((program) => program?.process ?? []), ...servers];
    const stands = new Map(all.map((process) => [process, process.stand("suspend")]));
    schedule.in(ms, () => {
      for (const process of servers) stands.get(process)?.();
      world.wakePrograms((process) => stands.get(process)?.());
    });
  },
});

/** A program is told to end, as by SIGTERM; another one starts in its slot some time later, whether it has ended or not. */
export const replace = sort<{ readonly program: number; readonly ms: number }>({
  name: "replace",
  choose: (random, limits) => ({ program: programOf(random, limits), ms: lastingOf(random) }),
  play(world, { program, ms }) {
    world.programs[program]?.interrupt();
    world.schedule.in(ms, () => world.start(program));
  },
});
