import {
  type Answer,
  type Json,
  type LineRequest,
  objectKeyOf,
  type OpenWatch,
  type StoredEntry,
  type Told,
  type WebhookBehavior,
  type World,
} from "./world.ts";

/** How one line is compared. */
interface LineOptions {
  /** What of the body is compared. @default all of it */
  readonly pick?: (body: Json) => unknown;
  /** The text of a refusal is not compared: no code of ksvm reads it. @default it is */
  readonly anyMessage?: boolean;
  /** What becomes of the object in etcd is not compared, as where that goes on after the answer. @default it is */
  readonly anyStored?: boolean;
}

/** What came of one line in one world, before it is normalized. */
interface PlayedLine {
  readonly title: string;
  readonly told: unknown;
  /** What became of the object in etcd; missing where the line does not write. */
  readonly stored?: unknown;
  readonly anyMessage: boolean;
}

const POLL_MS = 25;
/** Two minutes at the least, for a busy machine. The clock of a model costs no time. */
const MAX_POLLS = 4_800;

/** The script as it is played in one world: each line is one behavior that is compared. */
export class Play {
  readonly world: World;
  readonly lines: PlayedLine[] = [];

  constructor(world: World) {
    this.world = world;
  }

  /** Sends a request; its answer and what it did in etcd are compared. */
  async line(title: string, request: LineRequest, options: LineOptions = {}): Promise<Answer> {
    return (await this.begin(title, request, options)).answer;
  }

  /** Sends a request and does not wait for its answer, which becomes a line at this place of the script. */
  async begin(
    title: string,
    request: LineRequest,
    options: LineOptions = {},
  ): Promise<{ readonly answer: Promise<Answer> }> {
    const at = this.lines.push({ title, told: "no answer", anyMessage: false }) - 1;
    const isWrite = request.method !== "GET" && options.anyStored !== true;
    const key = objectKeyOf(request);
    const before = isWrite && key !== undefined ? await this.world.stored(key) : undefined;
    const finish = async (): Promise<Answer> => {
      const answer = await this.world.send(request);
      const written = key ?? objectKeyOf(request, answer.body);
      const after = isWrite && written !== undefined ? await this.world.stored(written) : undefined;
      this.lines[at] = {
        title,
        told: toldOf(answer, options),
        ...(isWrite && written !== undefined ? { stored: effectOf(before, after) } : {}),
        anyMessage: options.anyMessage === true,
      };
      return answer;
    };
    return { answer: finish() };
  }

  /** Sends a request again and again until its answer is as expected; the last answer is a line. */
  async until(
    title: string,
    request: LineRequest,
    isExpected: (answer: Answer) => boolean,
    options: LineOptions = {},
  ): Promise<Answer> {
    await this.wait(title, request, isExpected);
    return this.line(title, request, options);
  }

  /** Like {@link until}, and compares nothing: how soon a change is in force differs between worlds. */
  async wait(what: string, request: LineRequest, isExpected: (answer: Answer) => boolean): Promise<Answer> {
    for (let polls = 0; ; polls++) {
      const answer = await this.world.send(request);
      if (isExpected(answer)) return answer;
      if (polls >= MAX_POLLS) {
        throw new Error(`${this.world.name}: waited in vain: ${what}: ${JSON.stringify(answer).slice(0, 2_000)}`);
      }
      await this.world.pause(POLL_MS);
    }
  }

  /** Opens a watch; a refusal is compared, and so is that there is none. */
  async watch(
    title: string,
    request: LineRequest,
    { anyMessage = false }: Pick<LineOptions, "anyMessage"> = {},
  ): Promise<OpenWatch> {
    const opened = await this.world.watch(request);
    const isRefused = "status" in opened;
    this.lines.push({ title, told: isRefused ? toldOf(opened, {}) : "a watch is open", anyMessage });
    return isRefused ? { next: () => Promise.resolve({ ended: true }), stop: () => undefined } : opened;
  }

  /** The next event of a watch. */
  async event(title: string, watch: OpenWatch, options: Pick<LineOptions, "pick"> = {}): Promise<Told> {
    const told = await watch.next();
    const { pick } = options;
    const seen = "event" in told && pick !== undefined ? { ...told.event, object: pick(told.event.object) } : told;
    this.lines.push({ title, told: seen, anyMessage: false });
    return told;
  }

  /** A fact that the script finds by itself, such as the order of two numbers. */
  fact(title: string, told: unknown): void {
    this.lines.push({ title, told, anyMessage: false });
  }

  /** A webhook, and what its configuration says of it. */
  async webhook(name: string, behavior: WebhookBehavior): Promise<{ readonly url: string; readonly caBundle: string }> {
    return this.world.webhook(name, behavior);
  }
}

function toldOf({ body, headers, status }: Answer, { pick }: LineOptions): unknown {
  const isPicked = pick !== undefined && status < 300;
  if (status === 429 && String(body.message).includes("(re)initializing")) {
    // When to try again depends on how long it has lasted.
    const { retryAfterSeconds, ...details } = body.details;
    const said = { ...body, details: { ...details, saysWhen: retryAfterSeconds > 0 } };
    return { status, headers: { saysWhen: Number(headers["retry-after"]) > 0 }, body: said };
  }
  return { status, headers: headersOf(headers), body: isPicked ? pick(body) : body };
}

/** Those that ksvm's code reads, and the media type. */
function headersOf(headers: Answer["headers"]): unknown {
  const type = headers["content-type"]?.split(";")[0];
  return { type, retryAfter: headers["retry-after"], hasDate: headers["date"] !== undefined };
}

function effectOf(before: StoredEntry | undefined, after: StoredEntry | undefined): unknown {
  if (after === undefined) return before === undefined ? "absent" : "deleted";
  const isKept = before?.revision === after.revision;
  const deed = before === undefined ? "created" : isKept ? "kept as it was" : "written";
  return { deed, encoding: after.encoding };
}

/** One named part of the script: the same requests, in the same order, in each world. */
export interface Scenario {
  readonly name: string;
  /** It does what the others must not see, such as a compaction, so that it runs alone after them. @default false */
  readonly alone?: boolean;
  readonly play: (play: Play) => Promise<void>;
}

/** What came of a scenario. */
export interface Played {
  readonly lines: readonly NormalLine[];
  /** What broke it off. */
  readonly error?: unknown;
}

/** Plays scenarios in one world: side by side, and then one by one those that run alone. */
export async function playAll(world: World, scenarios: readonly Scenario[]): Promise<ReadonlyMap<string, Played>> {
  const played = new Map<string, Played>();
  const run = async (scenario: Scenario): Promise<void> => {
    played.set(scenario.name, await playOne(world, scenario));
  };
  await Promise.all(scenarios.filter(({ alone }) => alone !== true).map(run));
  for (const scenario of scenarios.filter(({ alone }) => alone === true)) await run(scenario);
  return played;
}

/** Plays one scenario in a world. */
export async function playOne(world: World, scenario: Scenario): Promise<Played> {
  const play = new Play(world);
  try {
    await scenario.play(play);
    return { lines: normalLines(play.lines) };
  } catch (error) {
    return { lines: normalLines(play.lines), error };
  }
}

/** A line in the words that both worlds share. */
export interface NormalLine {
  readonly title: string;
  readonly told: unknown;
  readonly stored?: unknown;
}

/**
 * Puts lines into words that do not depend on where they were played: uids are numbered as they appear, resourceVersions are
 * compared by their order, times by their form.
 */
function normalLines(lines: readonly PlayedLine[]): readonly NormalLine[] {
  const names = new Names();
  return lines.map(({ anyMessage, stored, title, told }) => ({
    title,
    told: names.normal(told, { anyMessage }),
    ...(stored === undefined ? {} : { stored }),
  }));
}

interface Place {
  readonly anyMessage: boolean;
  /** Whether a resourceVersion here is that of a list or of a bookmark, which others move on at any time. */
  readonly isFloor?: boolean;
}

const UUID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g;
/** `metav1.Time` and `metav1.MicroTime`. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const MICRO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;
const TIMES = new Set([
  "creationTimestamp",
  "deletionTimestamp",
  "time",
  "lastTransitionTime",
  "renewTime",
  "acquireTime",
]);
/** What an API server adds to a `generateName` that ends so. */
const GENERATED = /(generated[.-])[bcdfghjklmnpqrstvwxz2456789]{5}\b/g;
/** Texts that tell two resourceVersions. */
const VERSIONS_IN_TEXT =
  /ResourceVersion in the precondition \((\d+)\) does not match the ResourceVersion in record \((\d+)\)|ResourceVersion in precondition: (\d+), ResourceVersion in object meta: (\d+)|too old resource version: (\d+) \((\d+)\)|Too large resource version: (\d+), current: (\d+)|not decodable revision=(\d+)/g;
const WEBHOOK_URL = /https:\/\/127\.0\.0\.1:\d+/g;

class Names {
  readonly #uids = new Map<string, string>();
  /** In the order in which they were first seen. */
  readonly #versions: bigint[] = [];

  normal(value: unknown, place: Place): unknown {
    if (Array.isArray(value)) return value.map((one) => this.normal(one, place));
    if (typeof value === "string") return this.#text(value);
    if (typeof value !== "object" || value === null) return value;
    const { kind, type } = value as { readonly kind?: unknown; readonly type?: unknown };
    const isList = typeof kind === "string" && kind.endsWith("List");
    const entries = Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, one]) => {
        const isFloor = type === "BOOKMARK" || (isList ? key === "metadata" : place.isFloor === true);
        return [key, this.#field(key, one, { ...place, isFloor })];
      });
    return Object.fromEntries(entries) as unknown;
  }

  #field(key: string, value: unknown, place: Place): unknown {
    if (key === "managedFields") return entriesOf(value);
    if (typeof value !== "string") return this.normal(value, place);
    if (key === "message" && place.anyMessage) return "some text";
    if (key === "resourceVersion") return this.#version(value, place.isFloor === true);
    if (key === "continue") return value === "" ? "" : "a continue token";
    if (key === "caBundle") return "a bundle";
    if (TIMES.has(key)) return formOf(value);
    return this.#text(value);
  }

  #text(value: string): string {
    const named = value
      .replaceAll(GENERATED, "$1any")
      .replaceAll(UUID, (uid) => this.#uid(uid))
      .replaceAll(WEBHOOK_URL, "https://webhook");
    return named.replaceAll(VERSIONS_IN_TEXT, (found) =>
      found.replaceAll(/\d+/g, (version) => this.#version(version, true)),
    );
  }

  #uid(uid: string): string {
    const known = this.#uids.get(uid) ?? `uid${this.#uids.size + 1}`;
    this.#uids.set(uid, known);
    return known;
  }

  /** A floor is compared by the newest object that it is not older than. */
  #version(value: string, isFloor: boolean): string {
    if (!/^[1-9]\d*$/.test(value)) return value;
    const version = BigInt(value);
    const before = this.#versions.filter((one) => one <= version);
    const newest = before.reduce<bigint | undefined>((a, b) => (a !== undefined && a > b ? a : b), undefined);
    const newestName = newest === undefined ? "none" : `rv${this.#versions.indexOf(newest) + 1}`;
    if (isFloor) return `from ${newestName} on`;
    if (newest === version) return newestName;
    return `rv${this.#versions.push(version)}, after ${newestName}`;
  }
}

function formOf(value: string): string {
  if (TIME.test(value)) return "a time";
  return MICRO_TIME.test(value) ? "a time with microseconds" : value;
}

/**
 * As far as ksvm reads them: who owns `spec.versions` since when, and that there are some. Their order depends on
 * whether a second has passed between two writes.
 */
function entriesOf(value: unknown): unknown {
  if (!Array.isArray(value)) return value;
  const entries = value.map((entry: Readonly<Record<string, unknown>>) => {
    const { apiVersion, fieldsV1, manager, operation, subresource, time } = entry;
    const spec = (fieldsV1 as Readonly<Record<string, unknown>> | undefined)?.["f:spec"];
    const ownsVersions = typeof spec === "object" && spec !== null && Object.hasOwn(spec, "f:versions");
    return { apiVersion, manager, operation, subresource, ownsVersions, time: formOf(String(time)) };
  });
  return entries.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}
