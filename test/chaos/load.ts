import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { decodeStored } from "../control-plane/decode-stored.ts";
import type { StoredObject } from "../control-plane/stored-value.ts";
import { GROUP, type TestKind } from "../integration/crd-fixture.ts";
import { between, IS_LONG, pick, type Random, randomFrom } from "./random.ts";

/** In `make test` several scenarios share the machine, and more load would slow down what they wait for. */
const PAUSE_MS = IS_LONG ? 60 : 250;

/** How a {@link Load} works. */
export interface LoadOptions {
  readonly seed: number;
  /** Names of objects that exist already. */
  readonly existing: readonly string[];
  /** @default 4 */
  readonly workers?: number;
  /** Milliseconds between two requests of a worker. @default 250, and 60 in `make chaos` */
  readonly pauseMs?: number;
  /** The API servers that it talks to. @default the first one */
  readonly apiservers?: readonly [number, ...number[]];
}

/** What became of the load's requests. */
export interface LoadCounts {
  created: number;
  updated: number;
  statusUpdated: number;
  deleted: number;
  /** Nobody can tell whether these took effect. */
  unanswered: number;
  /** These did not take effect. */
  refused: number;
}

/** What may be stored of one object by all that its only writer knows. */
interface Expected {
  readonly sizes: readonly (number | undefined)[];
  readonly rounds: readonly (number | undefined)[];
  readonly mayBeThere: boolean;
  readonly mayBeGone: boolean;
}

interface Attempt {
  readonly name: string;
  readonly count: Exclude<keyof LoadCounts, "unanswered" | "refused">;
  readonly request: { readonly method: "POST" | "PATCH" | "DELETE"; readonly body?: unknown };
  readonly isStatus?: boolean;
  /** What is expected once it took effect. */
  readonly after: Expected;
}

const VERSIONS = ["v1alpha1", "v1"] as const;
const TIMEOUT_MS = 10_000;

/**
 * Other clients: they create, update (spec and status) and delete objects through both versions all the time, and know
 * what must be stored in the end. Each object has one writer. One whose request was not answered is not touched again: the
 * request may still be under way.
 */
export class Load {
  readonly counts: LoadCounts = { created: 0, updated: 0, statusUpdated: 0, deleted: 0, unanswered: 0, refused: 0 };
  readonly #controlPlane: ControlPlane;
  readonly #kind: TestKind;
  readonly #options: LoadOptions;
  readonly #expected = new Map<string, Expected>();
  readonly #missed: string[] = [];
  #isStopped = false;
  #forgetting = 0;
  #serial = 0;
  #work: Promise<unknown> = Promise.resolve();

  private constructor(controlPlane: ControlPlane, kind: TestKind, options: LoadOptions) {
    this.#controlPlane = controlPlane;
    this.#kind = kind;
    this.#options = options;
  }

  /** Writes until it is stopped, at the latest with the test. */
  static start(t: Test, controlPlane: ControlPlane, kind: TestKind, options: LoadOptions): Load {
    const load = new Load(controlPlane, kind, options);
    const { existing, seed, workers = 4 } = options;
    for (const name of existing) load.#expected.set(name, present(name.length));
    load.#work = Promise.all(
      Array.from({ length: workers }, (_, index) => {
        const own = existing.filter((_name, position) => position % workers === index);
        return load.#run(randomFrom(seed + index), own);
      }),
    );
    t.teardown(() => load.stop());
    return load;
  }

  /** Stops once the requests under way are answered. */
  async stop(): Promise<LoadCounts> {
    this.#isStopped = true;
    await this.#work;
    return this.counts;
  }

  /** Expects nothing any more of what was written up to now: its CRD was deleted. */
  forget(): void {
    this.#expected.clear();
    this.#missed.length = 0;
    this.#forgetting++;
  }

  /** What is missing from, or too much in, what is stored. */
  lossesIn(objects: readonly StoredObject[]): readonly string[] {
    const stored = new Map(objects.map((object) => [object.name, object]));
    const losses = [...this.#expected].flatMap(([name, expected]) => lossOf(name, expected, stored.get(name)) ?? []);
    return [...this.#missed, ...losses];
  }

  async #run(random: Random, names: string[]): Promise<void> {
    let forgetting = this.#forgetting;
    while (!this.#isStopped) {
      if (forgetting !== this.#forgetting) {
        names.length = 0;
        forgetting = this.#forgetting;
      }
      const attempt = this.#choose(random, names);
      if ((await this.#send(random, attempt)) === "unanswered") names.splice(names.indexOf(attempt.name), 1);
      await delay(this.#options.pauseMs ?? PAUSE_MS);
    }
  }

  #choose(random: Random, names: string[]): Attempt {
    const dice = random();
    const name = names[between(random, 0, names.length)];
    if (name === undefined || dice < 0.25) return this.#creation(names);
    const now = this.#expected.get(name) ?? present(undefined);
    const value = 1_000 + this.#serial++;
    if (dice < 0.6) {
      const after = { ...now, sizes: [value] };
      return { name, count: "updated", request: { method: "PATCH", body: { spec: { size: value } } }, after };
    }
    if (dice < 0.87) {
      const request = { method: "PATCH", body: { status: { round: value } } } as const;
      return { name, count: "statusUpdated", request, isStatus: true, after: { ...now, rounds: [value] } };
    }
    names.splice(names.indexOf(name), 1);
    const after = { ...now, mayBeThere: false, mayBeGone: true };
    return { name, count: "deleted", request: { method: "DELETE" }, after };
  }

  #creation(names: string[]): Attempt {
    const name = `load${this.#serial++}`;
    names.push(name);
    this.#expected.set(name, { sizes: [], rounds: [undefined], mayBeThere: false, mayBeGone: true });
    return { name, count: "created", request: { method: "POST" }, after: present(name.length) };
  }

  async #send(random: Random, attempt: Attempt): Promise<"done" | "refused" | "unanswered"> {
    const version = pick(random, VERSIONS);
    const apiserver = pick(random, this.#options.apiservers ?? [0]);
    const { name, request, isStatus } = attempt;
    const forgetting = this.#forgetting;
    const objects = `/apis/${GROUP}/${version}/namespaces/default/${this.#kind.plural}`;
    const isCreation = request.method === "POST";
    const path = isCreation ? objects : `${objects}/${name}${isStatus === true ? "/status" : ""}`;
    const body = isCreation ? this.#kind.object(name, version) : request.body;
    const answer = await this.#controlPlane
      .request(path, { ...request, body, apiserver, timeoutMs: TIMEOUT_MS })
      .catch(() => ({ status: 599, body: undefined }));
    // The object is that of a CRD which is gone.
    if (forgetting !== this.#forgetting) return "unanswered";
    return this.#note(attempt, answer);
  }

  #note(attempt: Attempt, { status, body }: { status: number; body: unknown }): "done" | "refused" | "unanswered" {
    const { name, after, count } = attempt;
    const before = this.#expected.get(name) ?? after;
    if (status < 300) {
      this.#expected.set(name, after);
      this.counts[count]++;
      return "done";
    }
    if (isDenial(body)) {
      this.counts.refused++;
      return "refused";
    }
    if (status >= 500) {
      this.#expected.set(name, either(before, after));
      this.counts.unanswered++;
      return "unanswered";
    }
    this.counts.refused++;
    if (status === 404 && namesObject(body) && !before.mayBeGone) this.#missed.push(`"${name}" was not found`);
    // A delete gave its object up before it was sent, and a create that was refused left none.
    return count === "deleted" || count === "created" ? "unanswered" : "refused";
  }
}

function present(size: number | undefined): Expected {
  return { sizes: [size], rounds: [undefined], mayBeThere: true, mayBeGone: false };
}

function either(a: Expected, b: Expected): Expected {
  return {
    sizes: [...a.sizes, ...b.sizes],
    rounds: [...a.rounds, ...b.rounds],
    mayBeThere: a.mayBeThere || b.mayBeThere,
    mayBeGone: a.mayBeGone || b.mayBeGone,
  };
}

/** Whether a 404 is about the object, and not about a path that is not served yet. */
function namesObject(body: unknown): boolean {
  return (body as { details?: { name?: string } } | undefined)?.details?.name !== undefined;
}

/** Whether an admission webhook denied an update, whatever its code: it did not take effect. */
function isDenial(body: unknown): boolean {
  const message = (body as { message?: string } | undefined)?.message ?? "";
  return /^admission webhook "[^"]*" denied the request/.test(message);
}

function lossOf(name: string, expected: Expected, stored: StoredObject | undefined): string | undefined {
  if (stored === undefined) return expected.mayBeGone ? undefined : `"${name}" is gone`;
  if (!expected.mayBeThere) return `"${name}" came back`;
  const { spec, status } = decodeStored(stored.raw) as { spec?: { size?: number }; status?: { round?: number } };
  if (!expected.sizes.includes(spec?.size)) {
    return `"${name}" has size ${spec?.size} instead of ${expected.sizes.join(" or ")}`;
  }
  if (!expected.rounds.includes(status?.round)) {
    return `"${name}" has round ${status?.round} instead of ${expected.rounds.join(" or ")}`;
  }
  return undefined;
}
