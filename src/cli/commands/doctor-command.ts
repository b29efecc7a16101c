import { systemClock } from "../../clock.ts";
import { diagnose } from "../../doctor/diagnose.ts";
import { readDoctorFacts } from "../../doctor/doctor-facts.ts";
import type { Severity } from "../../doctor/doctor-types.ts";
import { Retrier } from "../../retry/retrier.ts";
import { choice } from "../flags/kinds.ts";
import { anyNames } from "../flags/operands.ts";
import { EXIT, type ExitCode, worstOf } from "../render/exit-codes.ts";
import { printable } from "../render/printable.ts";
import { DOCTOR_FORMATS, renderDoctor } from "../render/render-doctor.ts";
import { defineCommand } from "../shared/command.ts";
import { connect } from "../shared/connect.ts";
import { fullNameOf } from "../shared/full-names.ts";

/** Milliseconds: a user waits for the answer. */
const PATIENCE_MS = 30_000;
/** A conversion webhook that is down keeps the objects from being listed, and is a finding. */
const WEBHOOK_PATIENCE_MS = 5_000;

const EXIT_CODES: Readonly<Record<Severity, ExitCode>> = {
  data: EXIT.wouldFail,
  action: EXIT.needsMigration,
  unknown: EXIT.failed,
};

/** `ksvm doctor`: finds what is wrong, and says what helps. */
export const DOCTOR_COMMAND = defineCommand({
  path: "doctor",
  description: "Find objects that cannot be read, stale storedVersions and what dead runs left behind, and what helps.",
  operands: anyNames("plural.group of a CRD; every CRD and the control plane if no name is given"),
  flags: {
    output: choice(DOCTOR_FORMATS, { short: "o", placeholder: "format", default: "table", help: "output format" }),
  },
  async run(io, { output, ...flags }, given) {
    const { signal, stdout } = io;
    const connection = await connect(flags, signal);
    try {
      const patience = { maxIdleMs: PATIENCE_MS, webhookWaitMs: WEBHOOK_PATIENCE_MS };
      const retrier = new Retrier({ clock: systemClock, random: Math.random, ...patience });
      const context = { client: connection.client, clock: systemClock, retrier, signal };
      const names = await Promise.all(given.map((name) => fullNameOf(context, name)));
      const facts = await readDoctorFacts(context, names);
      const items = diagnose(facts);
      stdout.write(`${printable(renderDoctor({ items, lookedAt: facts.crds.length }, output))}\n`);
      return worstOf(items.map(({ severity }) => EXIT_CODES[severity]));
    } finally {
      await connection.close();
    }
  },
});
