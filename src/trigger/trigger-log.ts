import type { Logger } from "pino";
import type { Decision } from "./decide.ts";
import { nameOfVersion } from "./discover.ts";
import type { Survey } from "./survey.ts";

const NOTHING = JSON.stringify([]);

/** Logs what a survey left out, once for as long as it stays the same. */
export class SurveyLog {
  readonly #logger: Logger;
  #leftOut = NOTHING;
  #unavailable = NOTHING;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** Logs what is different from the last time. */
  write({ leftOut, observed, unavailable }: Survey): void {
    this.#logger.debug({ resources: observed.length, leftOut: leftOut.length }, "Read discovery");
    // There are about a hundred subresources, which are no loss.
    const resources = leftOut
      .filter(({ name }) => !name.includes("/"))
      .map(({ name, reason }) => ({ resource: name, reason }));
    if (JSON.stringify(resources) !== this.#leftOut) {
      this.#leftOut = JSON.stringify(resources);
      this.#logger.info(
        { resources, subresources: leftOut.length - resources.length },
        resources.length > 0 ? "Left resources out" : "No resource is left out any more",
      );
    }
    const versions = unavailable.map((version) => ({
      groupVersion: nameOfVersion(version),
      server: version.server,
      reason: version.reason,
    }));
    if (JSON.stringify(versions) !== this.#unavailable) {
      this.#unavailable = JSON.stringify(versions);
      if (versions.length > 0) {
        this.#logger.warn({ versions }, "API servers do not show every group; StorageStates of the others are kept up");
      } else {
        this.#logger.info("API servers show every group again");
      }
    }
  }
}

/** Logs what was done about a resource, and a reason to wait that was not there `before`. */
export function logDecision(logger: Logger, resource: string, decision: Decision, before: string | undefined): void {
  const { cause, create, remove, status, waiting } = decision;
  if (status !== undefined) {
    const { current, persisted } = status;
    logger.info({ resource, cause, current, persisted }, "Wrote a StorageState");
  }
  if (remove.length > 0) {
    logger.info({ resource, cause, migrations: remove.map(({ name }) => name) }, "Deleted migrations");
  }
  if (create !== undefined) {
    logger.info({ resource, cause, hash: create.hash, attempt: create.attempt }, "Created a migration");
  }
  if (waiting !== undefined && waiting !== before) {
    logger.warn({ resource, reason: waiting }, "A migration waits");
  }
}
