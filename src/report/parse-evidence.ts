import { isAbsent, type JsonObject, objectIn, textIn, timeIn } from "../api/json-fields.ts";
import { KsvmError, messageOf } from "../errors.ts";
import type { Evidence } from "./evidence.ts";
import { resultIn, verificationIn } from "./parse-outcome.ts";

/** A file, as the user named it, and what it holds. */
export interface EvidenceText {
  readonly source: string;
  readonly text: string;
}

/** Lines about one resource that have not come to an end. */
interface Open {
  readonly first: string;
  readonly last: string;
}

/**
 * Reads what `ksvm migrate`, `reencrypt` and `verify` printed with `-o json`: a document on each line. Of the events in between only
 * their time is looked at.
 * @throws {KsvmError} EvidenceInvalid, naming the file and the line
 */
export function parseEvidence({ source, text }: EvidenceText): readonly Evidence[] {
  if (text.trim() === "") {
    throw new KsvmError("EvidenceInvalid", `Cannot use ${source}: it is empty`);
  }
  const found: Evidence[] = [];
  const open = new Map<string, Open>();
  for (const [index, line] of text.split("\n").entries()) {
    const read = line.trim() === "" ? undefined : lineIn(line, `${source}, line ${index + 1}`);
    if (read !== undefined) {
      const { resource, time } = read;
      const first = open.get(resource)?.first ?? time;
      const elapsedMs = Math.max(0, Date.parse(time) - Date.parse(first));
      const ended = endIn(read, { resource, source, time, elapsedMs });
      open.delete(resource);
      if (ended === undefined) {
        open.set(resource, { first, last: time });
      } else {
        found.push(ended);
      }
    }
  }
  const unfinished = [...open].map(([resource, { first, last }]): Evidence => {
    const elapsedMs = Math.max(0, Date.parse(last) - Date.parse(first));
    return { kind: "unfinished", resource, source, time: last, elapsedMs };
  });
  return [...found, ...unfinished];
}

interface Line {
  readonly where: string;
  readonly resource: string;
  readonly time: string;
  readonly fields: JsonObject;
}

/** `undefined` for a line that is about all resources together. */
function lineIn(text: string, where: string): Line | undefined {
  const fields = objectIn(parsed(text, where));
  const time = timeIn(fields?.["time"]);
  const resource = textIn(fields?.["resource"]);
  if (fields === undefined || time === undefined || textIn(fields["type"]) === undefined) {
    throw invalid(where, "it is not a line of ksvm migrate, reencrypt or verify with -o json");
  }
  if (resource === undefined && !isAbsent(fields["resource"])) {
    throw invalid(where, "its resource is no text");
  }
  return resource === undefined ? undefined : { where, resource, time, fields };
}

function parsed(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw invalid(where, `it is not JSON: ${messageOf(error)}`);
  }
}

type Place = Pick<Evidence, "elapsedMs" | "resource" | "source" | "time">;

/** What a line says in the end; `undefined` where it is an event, or a note. */
function endIn({ fields, where }: Line, place: Place): Evidence | undefined {
  switch (fields["type"]) {
    case "result": {
      const result = resultIn(fields);
      return { ...place, kind: "result", result: result ?? notOne(where, "the result of a run") };
    }
    case "verification": {
      const verification = verificationIn(fields);
      return { ...place, kind: "verification", verification: verification ?? notOne(where, "a verification") };
    }
    case "error": {
      const [code, message] = [textIn(fields["code"]), textIn(fields["message"])];
      return { ...place, kind: "error", code: code ?? notOne(where, "an error"), message: message ?? "" };
    }
    default:
      return undefined;
  }
}

function notOne(where: string, what: string): never {
  throw invalid(where, `it is called ${what}, and lacks fields of one`);
}

function invalid(where: string, why: string): KsvmError {
  return new KsvmError("EvidenceInvalid", `Cannot use ${where}: ${why}`);
}
