import tap from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, MIGRATING_VALUE, OWNER_ANNOTATION } from "../../src/api/names.ts";
import { formatOwner, type FreezeOwner } from "../../src/api/owner.ts";
import { KsvmError } from "../../src/errors.ts";
import { FreezeHold } from "../../src/freeze/freeze-hold.ts";
import { WEBHOOK_GUARD } from "../../src/freeze/guard.ts";
import type { ApiClient } from "../../src/kube/client.ts";
import { ApiError, DoubtfulAnswer, TransportError } from "../../src/kube/errors.ts";
import { Cleanup } from "../../src/retry/cleanup.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";

const OWNER: FreezeOwner = { lease: "kube-system/widgets", identity: "host_1", since: "2026-01-01T00:05:00Z" };
const NAME = crdWith().metadata.name;
const NO_ANSWER = new TransportError("PATCH x", "a", new Error("the time for an answer (70 s) is up"));

interface Patch {
  readonly body: { readonly metadata: Pick<CustomResourceDefinition["metadata"], "resourceVersion" | "uid"> & Changes };
}
interface Changes {
  readonly annotations: Readonly<Record<string, string | null>>;
}

/** A stand-in for an API server: a real one cannot be made to write at a chosen moment after its client has given up. */
class Crd {
  now: CustomResourceDefinition | undefined = crdWith({ metadata: { annotations: { theirs: "a" } } });
  readonly requests: string[] = [];

  read(): CustomResourceDefinition {
    this.requests.push("read");
    if (this.now === undefined) throw notFound();
    return this.now;
  }

  /** One that changes nothing leaves the resourceVersion as it is, as in etcd. */
  write({ body: { metadata } }: Patch): CustomResourceDefinition {
    if (this.now === undefined) throw notFound();
    const { annotations = {}, resourceVersion, uid } = this.now.metadata;
    if (metadata.resourceVersion !== resourceVersion || metadata.uid !== uid) throw new ApiError("PATCH x", 409, {});
    const all = Object.entries({ ...annotations, ...metadata.annotations });
    this.annotate(Object.fromEntries(all.filter((entry): entry is [string, string] => entry[1] !== null)));
    return this.now;
  }

  annotate(annotations: Record<string, string>): void {
    const { metadata } = this.now ?? crdWith();
    const isSame = JSON.stringify(annotations) === JSON.stringify(metadata.annotations);
    const resourceVersion = isSame ? metadata.resourceVersion : `${Number(metadata.resourceVersion) + 1}`;
    this.now = crdWith({ metadata: { ...metadata, annotations, resourceVersion } });
  }
}

function notFound(): ApiError {
  return new ApiError("GET x", 404, { answer: { kind: "Status", reason: "NotFound", details: { name: NAME } } });
}

/** What fails of the freeze, and what happens to the CRD before the cleanup. */
interface Trouble {
  readonly error?: Error;
  readonly meanwhile?: (crd: Crd, freeze: Patch) => void;
}

/** An attempt that ends right after its freeze was sent, and whose freeze is written once its cleanup is over. */
async function attempt({ error, meanwhile }: Trouble) {
  const crd = new Crd();
  const told: string[] = [];
  const stop = new AbortController();
  let late: Patch | undefined;
  const client = {
    get: async () => crd.read(),
    patch: async (_resource: object, _ref: object, patch: Patch) => {
      crd.requests.push("write");
      if (late !== undefined || error === undefined) return crd.write(patch);
      late = patch;
      meanwhile?.(crd, patch);
      stop.abort(new KsvmError("Interrupted", "Ctrl-C"));
      throw error;
    },
  } as unknown as ApiClient;
  const clock = new FakeClock();
  const context = { client, retrier: new Retrier({ clock, random: () => 0.5 }) };
  const cleanup = new Cleanup({ clock, emit: ({ type }) => told.push(type) });
  const hold = new FreezeHold({
    crdName: NAME,
    guard: WEBHOOK_GUARD,
    owner: OWNER,
    releasing: context,
    cleanup,
    onLifted: () => told.push("lifted"),
    besides: { key: "b" },
    undone: () => ({ key: null }),
  });
  const take = (): Promise<unknown> => hold.take({ ...context, renew: async () => undefined, signal: stop.signal });
  await cleanup.after(take).catch(() => undefined);
  const isHarmless = late === undefined || isRefused(crd, late);
  return { requests: crd.requests.join(" "), told, isHarmless, annotations: crd.now?.metadata.annotations };
}

function isRefused(crd: Crd, patch: Patch): boolean {
  try {
    crd.write(patch);
    return false;
  } catch {
    return true;
  }
}

for (const error of [
  NO_ANSWER,
  new DoubtfulAnswer("not this CRD"),
  new ApiError("PATCH x", 504, {}),
  new ApiError("PATCH x", 302, {}),
]) {
  await tap.test(`a freeze that may be written later is forestalled: ${error.message}`, async (t) => {
    t.same(await attempt({ error }), {
      requests: "read write read write read write",
      told: [],
      isHarmless: true,
      annotations: { theirs: "a" },
    });
  });
}

await tap.test("a freeze that was written without an answer is lifted, and nothing else is written", async (t) => {
  t.same(await attempt({ error: NO_ANSWER, meanwhile: (crd, freeze) => crd.write(freeze) }), {
    requests: "read write read read write",
    told: ["lifted"],
    isHarmless: true,
    annotations: { theirs: "a" },
  });
});

await tap.test("the freeze of an earlier attempt is lifted where the one that may come later found it", async (t) => {
  const owner = formatOwner({ ...OWNER, since: "2026-01-01T00:00:00Z" });
  const meanwhile = (crd: Crd, { body: { metadata } }: Patch): void => {
    // As it was found: at the same resourceVersion.
    const annotations = { theirs: "a", [MIGRATING_ANNOTATION]: MIGRATING_VALUE, [OWNER_ANNOTATION]: owner };
    crd.now = crdWith({ metadata: { ...metadata, annotations } });
  };
  const { annotations, isHarmless, told } = await attempt({ error: NO_ANSWER, meanwhile });
  t.same({ annotations, isHarmless, told }, { annotations: { theirs: "a" }, isHarmless: true, told: ["lifted"] });
});

const FREEZE_OF_ANOTHER = {
  [MIGRATING_ANNOTATION]: MIGRATING_VALUE,
  [OWNER_ANNOTATION]: formatOwner({ ...OWNER, identity: "host_2" }),
};

for (const [what, meanwhile] of [
  ["a user has edited the CRD", (crd: Crd) => crd.annotate({ theirs: "c" })],
  ["another run has frozen the CRD", (crd: Crd) => crd.annotate(FREEZE_OF_ANOTHER)],
  [
    "the CRD was deleted",
    (crd: Crd) => {
      crd.now = undefined;
    },
  ],
  [
    "the CRD was created again",
    (crd: Crd) => {
      crd.now = crdWith({ metadata: { uid: "uid-2", resourceVersion: "200" } });
    },
  ],
] as const) {
  await tap.test(`nothing is written where a freeze can no longer come: ${what}`, async (t) => {
    const { isHarmless, requests, told } = await attempt({ error: NO_ANSWER, meanwhile });
    t.match(requests, /^read write( read)+$/);
    t.same({ isHarmless, told }, { isHarmless: true, told: [] });
  });
}

const DENIED = 'admission webhook "x" denied the request: no';
for (const [what, error] of [
  ["was denied, whatever the status", new ApiError("PATCH x", 500, { answer: { kind: "Status", message: DENIED } })],
  ["was refused before it was done", new ApiError("PATCH x", 429, {})],
  ["was not sent", new KsvmError("OwnershipLost", "another run holds the Lease")],
] as const) {
  await tap.test(`nothing is written where the freeze ${what}`, async (t) => {
    t.equal((await attempt({ error })).requests, "read write read");
  });
}

await tap.test("a freeze that was answered costs no request more", async (t) => {
  t.same(await attempt({}), {
    requests: "read write read write",
    told: ["lifted"],
    isHarmless: true,
    annotations: { theirs: "a" },
  });
});
