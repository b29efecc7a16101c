import tap, { type Test } from "tap";
import type { CustomResourceDefinition } from "../../src/api/crd.ts";
import { MIGRATING_ANNOTATION, OWNER_ANNOTATION, STORAGE_MIGRATING_CONDITION } from "../../src/api/names.ts";
import { formatOwner } from "../../src/api/owner.ts";
import { breakGlass, clearCondition, inspectFreeze } from "../../src/freeze/break-glass.ts";
import { ApiClient } from "../../src/kube/client.ts";
import { Retrier } from "../../src/retry/retrier.ts";
import { crdWith } from "../api/crd-with.ts";
import { FakeClock } from "../fake-clock.ts";
import { groupList, sendJson, sendStatus, startServer } from "../kube/local-server.ts";
import { ManualClock } from "../manual-clock.ts";

function saying(status: string, reason: string): CustomResourceDefinition {
  const conditions = [{ type: STORAGE_MIGRATING_CONDITION, status, reason }];
  return { ...crdWith(), status: { storedVersions: ["v2"], conditions } };
}

/** What a CRD is written as, and what is told of it. */
async function cleared(crd: CustomResourceDefinition): Promise<readonly [told: unknown, ...writes: unknown[]]> {
  const writes: unknown[] = [];
  const client = {
    get: () => Promise.resolve(crd),
    patch: (_resource: unknown, _ref: unknown, { body }: { body: unknown }) => Promise.resolve(writes.push(body)),
  } as unknown as ApiClient;
  const retrier = new Retrier({ clock: new ManualClock(), random: () => 0.5 });
  const { signal } = new AbortController();
  return [await clearCondition({ client, retrier, signal }, crd.metadata.name), ...writes];
}

await tap.test("clearCondition() lists what the migration that began may have pruned", async (t) => {
  t.match(await cleared(saying("True", "MigrationRunning")), [
    { listed: ["v1"] },
    { status: { conditions: [], storedVersions: ["v2", "v1"] } },
  ]);
});

await tap.test(
  "clearCondition() leaves the condition of a migration that has ended by then: it may be all that tells of a prune",
  async (t) => {
    t.strictSame(await cleared(saying("False", "MigrationFailed")), [undefined]);
  },
);

await tap.test(
  "breakGlass() leaves the condition of a migration that has begun since the user was asked",
  async (t) => {
    const running = {
      metadata: { name: "bump", uid: "u", resourceVersion: "1" },
      spec: { resource: { group: "example.com", resource: "widgets" } },
    };
    const metadata = { resourceVersion: "1" };
    for (const items of [[], [running]]) {
      let found: readonly object[] = [];
      const written: unknown[] = [];
      // A stand-in: no real API server has a migration begin between two requests.
      const server = await startServer(t, ({ body, method, path }, response) => {
        const name = path.split("/").at(-1) ?? "";
        if (path === "/apis") return sendJson(response, 200, groupList("storagemigration.k8s.io/v1beta1"));
        if (name === "storageversionmigrations")
          return sendJson(response, 200, { kind: "List", metadata, items: found });
        if (!path.includes(`/customresourcedefinitions/${crdWith().metadata.name}`))
          return sendStatus(response, 404, { reason: "NotFound", details: { name } });
        if (method === "PATCH") written.push(body);
        return sendJson(response, 200, saying("True", "MigrationRunning"));
      });
      const retrier = new Retrier({ clock: new ManualClock(), random: () => 0.5 });
      const context = { client: new ApiClient(server.transport()), retrier, signal: new AbortController().signal };
      const findings = await inspectFreeze(context, crdWith().metadata.name);
      t.equal(findings.condition, "stuck");
      found = items;
      const {
        lines: [said],
        isFrozen,
      } = await breakGlass(context, findings);
      t.equal(isFrozen, items.length > 0);
      t.match(said, items.length === 0 ? /^cleared condition/ : /^left condition .*run this again$/);
      t.equal(written.length, items.length === 0 ? 1 : 0);
    }
  },
);

/** Annotations of a CRD and of its policy; no policy, where those are missing. */
interface Found {
  readonly crd: Readonly<Record<string, string>>;
  readonly policy?: Readonly<Record<string, string>>;
}

const BY_HAND = { [MIGRATING_ANNOTATION]: "by-hand" };

function ownedBy(identity: string, since = "2026-01-01T00:00:00.000Z"): Readonly<Record<string, string>> {
  const lease = `kube-system/ksvm-migrate.${crdWith().metadata.name}`;
  return { [OWNER_ANNOTATION]: formatOwner({ lease, identity, since }) };
}

/** What a run leaves, or has at work. */
function ofRun(identity: string, since?: string): Found {
  const owner = ownedBy(identity, since);
  return { crd: { [MIGRATING_ANNOTATION]: "true", ...owner }, policy: owner };
}

/** What a user is told who was asked about `asked`, and finds `found` when they say yes; and what was written. */
async function broken(t: Test, asked: Found, found: Found): Promise<readonly string[]> {
  let now = asked;
  const written: string[] = [];
  // A stand-in: no real API server has a run begin between two requests.
  const server = await startServer(t, ({ method, path }, response) => {
    const name = path.split("/").at(-1) ?? "";
    const isCrd = path.includes("/customresourcedefinitions/");
    const annotations = { ...(isCrd ? now.crd : now.policy) };
    if (!isCrd && (now.policy === undefined || path.includes("/validatingadmissionpolicybindings/")))
      return sendStatus(response, 404, { reason: "NotFound", details: { name } });
    if (method !== "GET") written.push(path);
    if (method === "PATCH") now = { ...now, crd: {} };
    if (method === "DELETE") now = { crd: now.crd };
    return sendJson(response, 200, crdWith({ metadata: { ...(isCrd ? {} : { name }), annotations } }));
  });
  const clock = new FakeClock();
  const retrier = new Retrier({ clock, random: () => 0.5 });
  const context = { client: new ApiClient(server.transport()), retrier, signal: new AbortController().signal };
  const findings = await inspectFreeze(context, crdWith().metadata.name);
  now = found;
  const { isFrozen, lines: said } = await breakGlass(context, findings);
  t.equal(
    isFrozen,
    said.some((line) => line.startsWith("left the freeze")),
    "the exit code says so, too",
  );
  t.equal(written.length, said.filter((line) => !/^left | was gone already$/.test(line)).length, "it says what it did");
  return said;
}

const UNFROZEN = '"widgets.example.com" is no longer frozen';
const POLICY = 'ValidatingAdmissionPolicy "ksvm-freeze.widgets.example.com"';
const LEFT_FREEZE = /^left the freeze of "widgets.example.com": by now it is that of b \(Lease .*; run this again$/;
const LEFT_POLICY = `left ${POLICY}: by now it is that of another run or client; run this again`;

await tap.test("breakGlass() leaves what a run has frozen since the user was asked", async (t) => {
  t.match(await broken(t, ofRun("a"), ofRun("b")), [LEFT_FREEZE, LEFT_POLICY]);
  t.match(await broken(t, { crd: {}, policy: ownedBy("a") }, ofRun("b")), [LEFT_FREEZE, LEFT_POLICY], "a policy alone");
  t.match(
    await broken(t, { crd: {}, policy: ownedBy("b") }, ofRun("b")),
    [LEFT_FREEZE, LEFT_POLICY],
    "installed first",
  );
  t.match(await broken(t, { crd: BY_HAND }, ofRun("b")), [LEFT_FREEZE], "another client's before");
  const policyOfA = await broken(t, ofRun("a"), { ...ofRun("b"), policy: ownedBy("a") });
  t.match(policyOfA, [LEFT_FREEZE, `removed ${POLICY}`], "the webhook guards the other one");
});

await tap.test("breakGlass() leaves the freeze of another client than the user was told of", async (t) => {
  const [said] = await broken(t, { crd: BY_HAND }, { crd: { [MIGRATING_ANNOTATION]: "other" } });
  t.match(said, /^left the freeze of .*: by now it is that of something other than ksvm; run this again$/);
  t.match(await broken(t, ofRun("a"), { ...ofRun("a"), crd: BY_HAND }), [/^left the freeze of /, `removed ${POLICY}`]);
});

await tap.test("breakGlass() lifts what the user was told of", async (t) => {
  const all = [UNFROZEN, `removed ${POLICY}`];
  t.strictSame(await broken(t, ofRun("a"), ofRun("a")), all);
  const later = ofRun("a", "2026-01-01T00:05:00.000Z");
  t.strictSame(await broken(t, ofRun("a"), later), all, "by a later attempt of the same run, too");
  t.strictSame(await broken(t, ofRun("pod-a/uid/3"), ofRun("pod-b/uid/1")), all, "by the same migration, tried again");
  t.match(
    await broken(t, ofRun("pod-a/uid/3"), ofRun("pod-a/other/4")),
    [/^left the freeze/, /^left /],
    "by another one",
  );
  t.strictSame(await broken(t, { crd: BY_HAND }, { crd: BY_HAND }), [UNFROZEN]);
  t.strictSame(await broken(t, { crd: {}, policy: {} }, { crd: {}, policy: {} }), [`removed ${POLICY}`]);
  t.strictSame(await broken(t, ofRun("a"), { crd: {} }), [`${POLICY} was gone already`]);
  const ownerAlone = { crd: ownedBy("a") };
  t.strictSame(await broken(t, ownerAlone, ownerAlone), [UNFROZEN], "what kubectl left of it");
});
