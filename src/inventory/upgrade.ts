import { objectIn } from "../api/json-fields.ts";
import { UPGRADE_FIELD_MANAGER } from "../api/names.ts";
import { epochOf } from "../apiservers/converge.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { unfreezeLeftBehind } from "../freeze/freeze.ts";
import { CRD_FIELD_MANAGER } from "../freeze/rule.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isForbidden, unlessForbidden, whose } from "../kube/errors.ts";
import {
  collectionPath,
  type Crd,
  CRDS,
  hasConversionWebhook,
  isClean,
  JSON_PATCH,
  METADATA_LIST,
  storageVersion,
} from "../kube/objects.ts";
import { retry } from "../kube/retry.ts";
import { Limiter } from "../migrator/limiter.ts";
import { LEAVING_VERSIONS, rewriteAll, targetOf } from "../migrator/rewrite.ts";
import { assertRights, rightsForDryRun } from "../migrator/rights.ts";
import type { Tally } from "../migrator/types.ts";
import { type FieldVersions, fieldVersionsText, findCrd, type FoundObjects, lookAtObjects } from "./inventory.ts";
import { type Loss, lossText, MAX_COUNTED, readLosses } from "./losses.ts";
import type { CrdManifest } from "./manifests.ts";
import { bringsOtherWebhook, hasVersion, isDoubted, plain, type Plan, type Step, steps, webhookText } from "./steps.ts";

/** What `check -f` and `migrate -f --dry-run` say of one CRD of a file. Field names are those of `-o json`. */
export interface CheckEntry extends Omit<Plan, "verdict"> {
  readonly name: string;
  /** The file. */
  readonly source: string;
  /** `unknown`: this user may not ask, or the objects cannot be read now. */
  readonly verdict: Plan["verdict"] | "unknown";
  /** What else there is to know. */
  readonly notes: readonly string[];
  /** What the API server says to a dry run of the file, where it refuses. */
  readonly apiServer?: string;
  /** Of the CRD in the cluster; missing where there is none. */
  readonly storageVersion?: string;
  readonly storedVersions?: readonly string[];
  /** The versions of the cluster that the file does not have. */
  readonly removedVersions: readonly string[];
  /** Missing where they cannot be counted. */
  readonly objects?: number;
  /** Fields of objects that the file's schema lacks; missing where that is not known. */
  readonly losses?: readonly Loss[];
  /** Objects whose managedFields name a version that the file does not have; missing where there is none. */
  readonly managedFields?: FieldVersions;
}

/** What is asked of the cluster about a file. */
interface Question {
  readonly client: Client;
  readonly file: CrdManifest;
  readonly signal: AbortSignal;
}

interface ReadFacts extends FoundObjects {
  readonly losses?: readonly Loss[] | undefined;
}

/**
 * Compares a file with the CRD of the cluster, and tries what can be tried: each write of the CRD, and each object in
 * the file's storage version where that is served already. It sends reads and dry runs only.
 *
 * @throws {ApiError} where the CRD cannot be read
 */
export async function check(client: Client, file: CrdManifest, signal: AbortSignal): Promise<CheckEntry> {
  const asked = { client, file, signal };
  const live = await findCrd(client, file.name, signal);
  const facts = live === undefined ? {} : await readFacts(asked, live);
  const entry = await survey(asked, live, facts);
  const isTried =
    entry.steps.some(({ kind }) => kind === "try") && entry.verdict !== "unknown" && (facts.count ?? 0) <= MAX_COUNTED;
  if (live === undefined || !isTried) return entry;
  const { group, names } = live.spec;
  const rights = rightsForDryRun({ group, plural: names.plural });
  const trial = assertRights(client, file.name, rights, signal).then(() => tryEach(asked, live, {}));
  const tally = await unlessRefused(trial, signal);
  if (!(tally instanceof KsvmError)) return tally.failed === 0 ? entry : rejected(entry, tally);
  return { ...entry, notes: [...entry.notes, `its objects could not be tried: ${messageOf(tally)}`] };
}

async function readFacts({ client, file, signal }: Question, live: Crd): Promise<ReadFacts> {
  const { group, names } = live.spec;
  // The storage version first: in it nothing has to be converted.
  const served = live.spec.versions.filter((version) => version.served);
  const versions = served.toSorted((a, b) => Number(b.storage) - Number(a.storage)).map(({ name }) => name);
  if (versions.length === 0) return {};
  const listed = { group, plural: names.plural, versions, hasWebhook: hasConversionWebhook(live) };
  const found = await lookAtObjects(client, listed, signal, (version) => !hasVersion(file, version));
  if (found.count === undefined) return found;
  const losses = await unlessRefused(readLosses(client, live, file, found.count, signal), signal);
  return losses instanceof KsvmError ? found : { ...found, losses };
}

/** What is read or written, or what is said against it. */
async function unlessRefused<T>(work: Promise<T>, signal: AbortSignal): Promise<T | KsvmError> {
  return work.catch((error: unknown) => {
    signal.throwIfAborted();
    if (error instanceof KsvmError) return error;
    throw error;
  });
}

/** The plan, with what the API server says to dry runs of its writes. */
async function survey(asked: Question, live: Crd | undefined, facts: ReadFacts): Promise<CheckEntry> {
  const { file } = asked;
  const { count, fieldVersions, losses } = facts;
  const plan = steps(live, file, { lostIn: facts.unreadableIn, losses: losses?.map(lossText) });
  let entry: CheckEntry = {
    name: file.name,
    source: file.source,
    ...plan,
    notes: plan.steps.length === 0 ? [] : notesOn(live, file, plan, facts),
    ...(live && { storageVersion: storageVersion(live), storedVersions: live.status?.storedVersions ?? [] }),
    removedVersions: (live?.spec.versions ?? []).flatMap(({ name }) => (hasVersion(file, name) ? [] : [name])),
    ...(count === undefined ? {} : { objects: count }),
    ...(losses === undefined ? {} : { losses }),
    ...(fieldVersions === undefined ? {} : { managedFields: fieldVersions }),
  };
  for (const step of plan.steps) {
    const said = step.spec && (await unlessRefused(write(asked, live, step, true), asked.signal));
    if (!(said instanceof ApiError)) continue;
    if (whose(said) === "webhook" || whose(said) === "apiServer") throw said;
    const causes = otherCauses(said);
    if (step.kind === "apply" || causes.length > 0) entry = { ...entry, apiServer: said.said };
    if (causes.length === 0) continue;
    if (!isForbidden(said)) {
      return { ...entry, verdict: "refused", reason: `the API server refuses it: ${causes.join("; ")}`, steps: [] };
    }
    const reason = "this user may not send a dry run of it, so it is not known whether it is accepted";
    return plan.verdict === "applicable" ? { ...entry, verdict: "unknown", reason } : entry;
  }
  // A file may bring another webhook because the one of now does not answer.
  const problem = facts.problem ?? (live && bringsOtherWebhook(file, live) ? undefined : facts.conversionProblem);
  if (problem === undefined || plan.steps.every(({ kind }) => kind === "apply")) return entry;
  return { ...entry, verdict: "unknown", reason: `${plan.reason}, and its objects cannot be read: ${problem}` };
}

/**
 * Both wordings of the refusal that a migration takes away: of Kubernetes 1.36 and newer, and of older ones.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go
 */
const MISSING_FROM_VERSIONS = /(?:missing from|must appear in) spec\.versions/;

/** What the API server refuses besides versions that storedVersions lists. */
function otherCauses({ causes, said }: ApiError): readonly string[] {
  const texts = causes.map(({ field = "", message = "" }) => `${field}: ${message}`);
  return (texts.length === 0 ? [said] : texts).filter((cause) => !MISSING_FROM_VERSIONS.test(cause));
}

/** As many fields or objects as a line has room for. */
const NAMED = 5;

function named(texts: readonly string[], all = texts.length): string {
  const more = all > NAMED ? ` and ${all - NAMED} more` : "";
  return `${texts.slice(0, NAMED).join("; ")}${more}`;
}

function notesOn(live: Crd | undefined, file: CrdManifest, plan: Plan, facts: ReadFacts): readonly string[] {
  const { target } = file;
  const storage = live && storageVersion(live);
  const { fieldVersions, losses = [], unreadableIn } = facts;
  const notes: string[] = [];
  if (losses.length > 0) {
    const fields = named(losses.map(lossText));
    notes.push(`the schema of ${target} lacks ${fields}: no client reads that any more, and the next write drops it`);
  }
  if (fieldVersions !== undefined) {
    notes.push(
      `${fieldVersionsText(fieldVersions)}, which server-side apply cannot convert then: the migration ends that`,
    );
  }
  if (live !== undefined && bringsOtherWebhook(file, live) && facts.count !== 0) {
    const isAwaited = plan.steps.some(({ kind }) => kind === "serve");
    const remedy = isAwaited ? "ksvm migrate -f --apply waits for it" : "start it before this file is applied";
    notes.push(
      `it brings ${webhookText(file.spec["conversion"])}: until that answers, no client reads or writes an object in ` +
        `another version than it is stored in; ${remedy}`,
    );
  }
  if (storage !== undefined && storage !== target && hasVersion(file, storage)) {
    notes.push(
      `it makes ${target} the storage version; objects stay stored in ${storage} until ksvm migrate ${file.name}`,
    );
  }
  if (unreadableIn !== undefined) {
    notes.push(
      `it brings ${unreadableIn} back, in which objects are stored: run ksvm migrate ${file.name} --force then`,
    );
  }
  if (file.versions.every(({ served }) => !served)) {
    notes.push("it serves no version: no client can read or write the objects");
  }
  return notes;
}

function rejected(entry: CheckEntry, { failed, failures }: Tally): CheckEntry {
  const texts = failures.map(({ name, namespace, reason }) => `${namespace ? `${namespace}/` : ""}${name}: ${reason}`);
  const reason = `${failed} objects are refused in the storage version of this file: ${named(texts, failed)}`;
  const help = ["change these objects, or the schema or webhook that refuses them, and apply this file again"];
  return { ...entry, verdict: "refused", reason, help, steps: [] };
}

/** How {@link upgrade} behaves, and what it tells. */
export interface UpgradeOptions {
  /** Whether the file itself is written, too. */
  readonly isApplied: boolean;
  /** Milliseconds for which a webhook that is down is waited for. */
  readonly maxIdleMs: number;
  readonly maxInFlight?: number;
  readonly maxQps?: number;
  readonly signal: AbortSignal;
  /** Rewrites every object, also where the CRD is clean. @returns whether that is done and storedVersions pruned */
  readonly migrate: () => Promise<boolean>;
  /** Told before each step, and what there is to know of the file. */
  readonly onStep: (step: Step, notes: readonly string[]) => void;
  /** Told what is waited for. */
  readonly onWait: (reason: string) => void;
}

/** How an upgrade ended, where nothing was thrown. A migration that is incomplete has reported why. */
export interface UpgradeEnd {
  readonly outcome: "done" | "refused" | "incomplete";
  readonly entry: CheckEntry;
}

/** How often a step is done again that another client undoes, and how often the CRD may be written in between. */
const MAX_TIMES = 5;
const MAX_CONFLICTS = 20;

/**
 * Takes a CRD from what it is to what a file says: it does the first of the {@link steps} that are left, and looks
 * again. So each rests on what is there, and a second call goes on where the first one was killed.
 *
 * @throws {KsvmError} StorageVersionChanged where another client undoes a step; PruneFailed where the migrator does not
 * prune; whatever a request fails with
 */
export async function upgrade(client: Client, file: CrdManifest, options: UpgradeOptions): Promise<UpgradeEnd> {
  const { isApplied, migrate, onStep, signal } = options;
  const asked = { client, file, signal };
  const found = await findCrd(client, file.name, signal);
  if (found !== undefined) await unfreezeLeftBehind(client, found, signal);
  const facts = found === undefined ? {} : await readFacts(asked, found);
  const entry = await survey(asked, found, facts);
  if (entry.verdict === "refused" || entry.verdict === "data-loss") return { outcome: "refused", entry };
  const known = { lostIn: facts.unreadableIn, losses: facts.losses?.map(lossText) };
  const times = new Map<Step["kind"], number>();
  let tried: string | undefined;
  let rewritten: string | undefined;
  for (let conflicts = 0; ; ) {
    signal.throwIfAborted();
    const live = await findCrd(client, file.name, signal);
    const plan = steps(live, file, { ...known, tried, rewritten });
    if (plan.steps.length === 0) return { outcome: "refused", entry: { ...entry, ...plan } };
    // Without --apply it ends with the migration, and moves the storage version only for that.
    const isFlip = plan.steps.some(({ kind }) => kind === "flip");
    const isDue = ({ kind }: Step): boolean => isApplied || kind === "migrate" || (isFlip && kind !== "apply");
    const step = plan.steps.find(isDue);
    if (step === undefined) break;
    const count = times.get(step.kind) ?? 0;
    if (count === MAX_TIMES) throw undone(file, step);
    onStep(step, entry.notes);
    try {
      const written = step.spec === undefined ? live : await writeTried(asked, live, step);
      if (step.kind === "apply") break;
      if (written === undefined || live === undefined) continue;
      if (step.kind === "serve" || step.kind === "try") {
        const tally = await tryInTime(asked, live, written, options);
        if (tally.failed > 0) return { outcome: "refused", entry: rejected(entry, tally) };
        tried = epochOf(written);
        // The write found the CRD of then, and left its storage version.
        if (rewritten === epochOf(live)) rewritten = tried;
      } else if (step.kind === "migrate") {
        await nameLeaving(asked, live);
        if (!(await migrate())) return { outcome: "incomplete", entry };
        rewritten = await provenEpoch(asked, live);
      }
      times.set(step.kind, count + 1);
    } catch (error) {
      if (whose(error) !== "conflict" || ++conflicts > MAX_CONFLICTS) throw error;
    }
  }
  const last = await handOver(asked);
  // Until a version left, clients may have written objects in it. Then their managedFields name it.
  const isSeen = isApplied && rewritten !== undefined && last !== undefined;
  const isNamed = isSeen && (await readFacts(asked, last)).fieldVersions !== undefined;
  return { outcome: isNamed && !(await migrate()) ? "incomplete" : "done", entry };
}

function undone({ name }: CrdManifest, { does }: Step): KsvmError {
  return new KsvmError(
    "StorageVersionChanged",
    `Cannot go on with "${name}": another client has undone the step that ${does}; pause what applies the old CRD, ` +
      "such as an Argo CD or Flux sync or the operator itself, and run again",
  );
}

/**
 * Writes a CRD as a step says, with the metadata of the file over its own. It creates the CRD where there is none.
 * @throws {ApiError} a conflict where another client wrote it since it was read
 */
async function write(
  { client, file: { apiVersion, metadata, name }, signal }: Question,
  live: Crd | undefined,
  { spec }: Pick<Step, "spec">,
  dryRun: boolean,
): Promise<Crd> {
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, dryRun, signal };
  if (live === undefined) {
    const body = { apiVersion, kind: "CustomResourceDefinition", metadata, spec };
    return retry(client, () => client.create<Crd>(CRDS, body, options), { signal });
  }
  const { annotations, labels, resourceVersion, uid } = live.metadata;
  const laid = {
    ...(dryRun ? {} : { resourceVersion, uid }),
    labels: { ...labels, ...objectIn(metadata["labels"]) },
    annotations: { ...annotations, ...objectIn(metadata["annotations"]) },
  };
  const body = [
    ...Object.entries(laid).map(([field, value]) => ({ op: "add", path: `/metadata/${field}`, value })),
    // What the file leaves out is taken away.
    { op: "replace", path: "/spec", value: spec },
  ];
  return retry(client, () => client.patch<Crd>(`${CRDS}/${name}`, body, options, JSON_PATCH), { signal });
}

async function writeTried(asked: Question, live: Crd | undefined, step: Step): Promise<Crd> {
  await write(asked, live, step, true);
  return write(asked, live, step, false);
}

/** Tries a write of each object in the file's storage version that changes nothing, as a dry run. */
function tryEach(
  { client, file, signal }: Question,
  live: Crd,
  limits: Pick<UpgradeOptions, "maxInFlight" | "maxQps">,
): Promise<Tally> {
  const versions = live.spec.versions.map((version) => ({ ...plain(version), storage: version.name === file.target }));
  const silent = { onPage: () => undefined, onProgress: () => undefined };
  const options = { limiter: new Limiter(client, limits), dryRun: true, signal, ...silent };
  return rewriteAll(client, targetOf({ ...live, spec: { ...plain(live.spec), versions } }), options);
}

const POLL_MS = 1_000;

/**
 * Waits until the file's storage version is served and its webhook answers, and tries each object. What was written for
 * it is taken back where that fails: nothing is stored in it yet.
 */
async function tryInTime(asked: Question, before: Crd, served: Crd, options: UpgradeOptions): Promise<Tally> {
  const { client, file, signal } = asked;
  const { group, names } = served.spec;
  const version = file.target;
  const path = collectionPath({ group, version, plural: names.plural });
  const end = client.clock.monotonic() + options.maxIdleMs;
  for (;;) {
    // The handlers of an API server follow a change of the CRD a moment later.
    await client.clock.sleep(POLL_MS, signal);
    try {
      await client.list(path, { query: { limit: 1 }, accept: METADATA_LIST, signal });
      const tally = await tryEach(asked, served, options);
      if (tally.failed > 0) await takeBack(asked, before, served);
      return tally;
    } catch (error) {
      signal.throwIfAborted();
      const mayPass = ["webhook", "apiServer", "gone"].includes(whose(error) ?? "");
      if (mayPass && client.clock.monotonic() < end) {
        options.onWait(messageOf(error));
        continue;
      }
      const state = (await takeBack(asked, before, served)) ? "the CRD is as it was" : "nothing is stored in it";
      const text = `its objects cannot be read in ${version}: ${messageOf(error)}; ${state}`;
      const code = error instanceof KsvmError ? error.code : "Internal";
      throw new KsvmError(code, `Cannot make ${version} the storage version of "${file.name}": ${text}`, {
        cause: error,
      });
    }
  }
}

/** Puts the spec back as it was. @returns whether it is: not where another client has changed it in between */
async function takeBack(asked: Question, before: Crd, served: Crd): Promise<boolean> {
  if (served === before) return true;
  const live = await findCrd(asked.client, asked.file.name, asked.signal);
  if (live === undefined || epochOf(live) !== epochOf(served)) return false;
  const file = { ...asked.file, metadata: {} };
  await write({ ...asked, file }, live, { spec: { ...plain(before.spec) } }, false);
  await handOver(asked);
  return true;
}

/** Has the migration take entries of versions that the file drops out of managedFields, where a webhook converts. */
async function nameLeaving({ client, file, signal }: Question, live: Crd): Promise<void> {
  const leaving = live.spec.versions.flatMap(({ name }) => (hasVersion(file, name) ? [] : [name]));
  if (!hasConversionWebhook(live) || leaving.length === 0) return;
  const body = { metadata: { annotations: { [LEAVING_VERSIONS]: leaving.join(",") } } };
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, signal };
  await retry(client, () => client.patch(`${CRDS}/${file.name}`, body, options), { signal });
}

/**
 * The epoch at which every object was rewritten; `undefined` where the CRD changed meanwhile. From then on this run
 * vouches for storedVersions, and not the client that wrote it before.
 * @throws {KsvmError} PruneFailed where the migrator has not pruned
 */
async function provenEpoch({ client, file, signal }: Question, before: Crd): Promise<string | undefined> {
  const { name } = file;
  const live = await findCrd(client, name, signal);
  if (live === undefined || epochOf(live) !== epochOf(before)) return undefined;
  const { storedVersions = [] } = live.status ?? {};
  if (!isClean(live)) {
    const text = `its migration succeeded, and storedVersions is still ${storedVersions.join(", ")}`;
    throw new KsvmError("PruneFailed", `Cannot go on with "${name}": ${text}; run again with --standalone`);
  }
  if (isDoubted(live)) {
    const { resourceVersion, uid } = live.metadata;
    const type = { apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition" };
    const body = { ...type, metadata: { name, resourceVersion, uid }, status: { storedVersions } };
    const options = { fieldManager: CRD_FIELD_MANAGER, signal };
    await unlessForbidden(client.apply(`${CRDS}/${name}/status`, body, options));
  }
  return epochOf(before);
}

/**
 * Gives up the ownership of what the steps wrote: a server-side apply of the file then meets no conflict.
 * @returns the CRD as it was read
 */
async function handOver({ client, file: { name }, signal }: Question): Promise<Crd | undefined> {
  for (let conflicts = 0; ; ) {
    const live = await findCrd(client, name, signal);
    const { managedFields = [], resourceVersion, uid } = live?.metadata ?? {};
    const left = managedFields.filter(({ manager }) => manager !== UPGRADE_FIELD_MANAGER);
    if (left.length === managedFields.length) return live;
    const annotations = { [LEAVING_VERSIONS]: null };
    const body = { metadata: { uid, resourceVersion, managedFields: left, annotations } };
    const options = { fieldManager: UPGRADE_FIELD_MANAGER, signal };
    try {
      await retry(client, () => client.patch(`${CRDS}/${name}`, body, options), { signal });
    } catch (error) {
      if (whose(error) !== "conflict" || ++conflicts > MAX_CONFLICTS) throw error;
    }
  }
}
