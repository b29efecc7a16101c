import type { Answer, Json, LineRequest, OpenWatch, StoredEntry, Told, WebhookBehavior, World } from "./line.ts";
import { objectKeyOf } from "./object-key.ts";

/** How one line is compared. */
export interface LineOptions {
  /** What of the body is compared. @default all of it */
  readonly pick?: (body: Json) => unknown;
  /** The text of a refusal is not compared: no code of ksvm reads it. @default it is */
  readonly anyMessage?: boolean;
  /** What becomes of the object in etcd is not compared, as where that goes on after the answer. @default it is */
  readonly anyStored?: boolean;
}

/** What came of one line in one world, before it is normalized. */
export interface PlayedLine {
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
