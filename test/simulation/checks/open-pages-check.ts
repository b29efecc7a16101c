import { compareResourceVersions } from "../../../src/api/resource-version.ts";
import { MAX_OPEN_PAGES } from "../../../src/migrator/rewrite/open-pages.ts";
import { resourcePathOf } from "../model/paths.ts";
import type { ModelAnswer, ModelRequest } from "../model/types.ts";
import { groupOf } from "../world/kinds.ts";
import type { World } from "../world/world.ts";
import type { Check } from "./check.ts";

/** Those whose objects are under way, and the one that is listed ahead. */
const MAX_PAGES = MAX_OPEN_PAGES + 1;

interface ListBody {
  readonly metadata: { readonly resourceVersion: string };
  readonly items: readonly { readonly metadata: { readonly name: string; readonly resourceVersion: string } }[];
}

/** The pages of one list of a process, from the first one of which an object has yet to be written. */
export class HeldPages {
  /** Of each page the objects whose write has not ended. */
  readonly #pages: Set<string>[] = [];

  /** How many there are, up to the last one that was listed. */
  get count(): number {
    return this.#pages.length;
  }

  /** A page was listed. @param due those of its objects that have to be written */
  listed(due: readonly string[]): void {
    this.#pages.push(new Set(due));
    this.#forget();
  }

  /** A write of an object ended, whatever came of it. */
  written(name: string): void {
    for (const page of this.#pages) page.delete(name);
    this.#forget();
  }

  #forget(): void {
    while (this.#pages[0]?.size === 0) this.#pages.shift();
  }
}

/**
 * What a run keeps in memory of objects: it lists a page only once all but a few of those before it are done. What is seen of that is the
 * writes, dry-runs among them, so that an object which is written again and again counts as done after the first time.
 */
export class OpenPagesCheck implements Check {
  readonly name = "open pages";
  readonly #world: World;
  /** By process and resource. */
  readonly #held = new Map<string, HeldPages>();
  /** The lowest resourceVersion that a list had, by resource: no run takes an object for new that is older. */
  readonly #oldest = new Map<string, string>();

  constructor(world: World) {
    this.#world = world;
    const { cluster } = world;
    const { onExchange } = cluster;
    cluster.onExchange = (request, process) => {
      const ended = onExchange(request, process);
      const told = this.#sent(request, process.name);
      if (told === undefined) return ended;
      return (answer) => {
        told(answer);
        ended(answer);
      };
    };
  }

  #sent({ method, path, query }: ModelRequest, process: string): ((answer?: ModelAnswer) => void) | undefined {
    const { group, name, resource } = resourcePathOf(path) ?? {};
    const isOfPlan = this.#world.plan.kinds.some((kind) => kind.plural === resource && groupOf(kind) === group);
    if (!isOfPlan || resource === undefined) return undefined;
    const of = `${process} ${resource}`;
    if (method === "PATCH" && name !== undefined) return () => this.#held.get(of)?.written(name);
    if (method !== "GET" || query.has("watch") || query.has("fieldSelector")) return undefined;
    // An attempt begins with a list of one object.
    if (!query.has("continue")) this.#held.set(of, new HeldPages());
    if (query.get("limit") === "1") return undefined;
    const { count } = this.#held.get(of) ?? { count: 0 };
    if (count >= MAX_PAGES)
      this.#world.violate(`memory: ${process} has ${count} pages of ${resource}, and lists one more`);
    return (answer) => this.#listed(of, resource, answer);
  }

  #listed(of: string, resource: string, answer?: ModelAnswer): void {
    if (answer?.status !== 200 || typeof answer.body !== "string") return;
    const list = readList(answer.body);
    if (list === undefined) return;
    const { resourceVersion } = list.metadata;
    const before = this.#oldest.get(resource);
    const oldest = before === undefined || isOlder(resourceVersion, before) ? resourceVersion : before;
    this.#oldest.set(resource, oldest);
    const due = list.items.filter(({ metadata }) => !isOlder(oldest, metadata.resourceVersion));
    const held = this.#held.get(of) ?? new HeldPages();
    this.#held.set(of, held);
    held.listed(due.map(({ metadata }) => metadata.name));
  }
}

function isOlder(one: string, other: string): boolean {
  return (compareResourceVersions(one, other) ?? 0) < 0;
}

/** `undefined` for what something between answers in the place of an API server. */
function readList(body: string): ListBody | undefined {
  try {
    const list = JSON.parse(body) as ListBody;
    return Array.isArray(list.items) ? list : undefined;
  } catch {
    return undefined;
  }
}
