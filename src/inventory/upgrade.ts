import { hasUnsafeInteger, withoutUndefined } from "../api/json-fields.ts";
import { UPGRADE_FIELD_MANAGER } from "../api/names.ts";
import { EpochChanged, epochOf, untilConverged } from "../apiservers/converge.ts";
import type { ApiServerOptions } from "../apiservers/find.ts";
import { named } from "../cut-text.ts";
import { KsvmError, messageOf } from "../errors.ts";
import { freezerOf, unfreezeLeftBehind } from "../freeze/freeze.ts";
import type { Client } from "../kube/client.ts";
import { ApiError, isConversionRefusal, isForbidden, whose } from "../kube/errors.ts";
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
import {
  type FieldVersions,
  fieldVersionsText,
  findCrd,
  type FoundObjects,
  lookAtObjects,
  objectsOf,
} from "./inventory.ts";
import { type Loss, lossText, MAX_COUNTED, readLosses } from "./losses.ts";
import {
  bringsOtherWebhook,
  type CrdManifest,
  hasVersion,
  isLeaving,
  plain,
  type Route,
  type Step,
  steps,
  webhookOf,
} from "./steps.ts";

/** What `check -f` and `migrate -f --dry-run` say of one CRD of a file. Field names are those of `-o json`. */
export interface CheckEntry extends Omit<Route, "verdict"> {
  readonly name: string;
  readonly source: string;
  /** `unknown`: this user may not ask, or the objects cannot be read now. */
  readonly verdict: Route["verdict"] | "unknown";
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

/**
 * Compares a file with the CRD of the cluster, and tries what can be tried: each write of the CRD, and each object in
 * the file's storage version where that is served already. It sends reads and dry runs only.
 *
 * @throws {ApiError} where the CRD cannot be read
 */
export async function check(client: Client, file: CrdManifest, signal: AbortSignal): Promise<CheckEntry> {
  const live = await findCrd(client, file.name, signal);
  return tryServed({ client, file, signal }, await survey({ client, file, signal }, live), live);
}

/** Tries each object in the file's storage version where that is served already. */
async function tryServed(asked: Question, entry: CheckEntry, live: Crd | undefined): Promise<CheckEntry> {
  const { client, file, signal } = asked;
  const { notes, objects = 0, verdict } = entry;
  const [first] = entry.steps;
  if (live === undefined || first === undefined || first.kind === "apply" || objects === 0) return entry;
  if (verdict === "unknown") return entry;
  if (first.spec !== undefined || objects > MAX_COUNTED) {
    const text = `its objects were not tried: ${file.target} is not served as the file has it, or they are too many`;
    return { ...entry, notes: [...notes, `${text}; ksvm migrate -f --apply tries them`] };
  }
  try {
    const { group, names } = live.spec;
    await assertRights(client, file.name, rightsForDryRun({ group, plural: names.plural }), signal);
    return (await tryObjects(asked, entry, live, live, { maxIdleMs: 0, onWait: () => undefined })) ?? entry;
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof KsvmError)) throw error;
    return { ...entry, notes: [...notes, `its objects could not be tried: ${error.message}`] };
  }
}

/** The plan, with what the objects show, and what the API server says to dry runs of its writes. */
async function survey(asked: Question, live: Crd | undefined): Promise<CheckEntry> {
  const { client, file, signal } = asked;
  const isAsked = (version: string): boolean => live !== undefined && isLeaving(live, file, version);
  const found = live === undefined ? {} : await lookAtObjects(client, objectsOf(live), signal, isAsked);
  const { count, fieldVersions, unreadableIn } = found;
  const facts = { lostIn: unreadableIn, hasGoneFields: fieldVersions !== undefined };
  const [first, ...further] = steps(live, file, facts).steps;
  // Losses are read through the conversion of now: the file has to keep it, or to change it in a later step only.
  const isAnew = webhookOf((first?.spec ?? live?.spec)?.["conversion"]) !== webhookOf(live?.spec.conversion);
  const isSame = webhookOf(file.spec["conversion"]) === webhookOf(live?.spec.conversion);
  const isRead = live !== undefined && (isSame || (bringsOtherWebhook(file, live) && further.length > 0 && !isAnew));
  const isUnserved = live?.spec.versions.every(({ served }) => !served) === true;
  const total = isUnserved ? Infinity : count;
  const read = isRead && total !== undefined ? readLosses(client, live, file, total, signal) : undefined;
  const losses = await read?.catch((error: unknown) => void refusal(error));
  const plan = steps(live, file, { ...facts, isLossless: losses?.length === 0 });
  let entry = withoutUndefined<CheckEntry>({
    name: file.name,
    source: file.source,
    ...plan,
    notes: live === undefined ? [] : notesOn(live, file, plan.steps, found, losses),
    storageVersion: live && storageVersion(live),
    storedVersions: live && (live.status?.storedVersions ?? []),
    removedVersions: (live?.spec.versions ?? []).map(({ name }) => name).filter((name) => !hasVersion(file, name)),
    objects: count,
    losses,
    managedFields: fieldVersions,
  });
  const freezer = live && freezerOf(live.metadata);
  if (typeof freezer === "object" && plan.steps.length > 1) {
    const help = [`wait for that run to end: ksvm status ${file.name}; if it is dead: ksvm unfreeze ${file.name}`];
    return { ...entry, verdict: "unknown", reason: `${freezer.identity} has frozen its storage version`, help };
  }
  for (const { spec } of plan.steps) {
    const refused = spec && (await write(asked, live, spec, true).catch(refusal));
    if (!(refused instanceof ApiError)) continue;
    if (whose(refused) === "webhook" || whose(refused) === "apiServer") throw refused;
    entry = { ...entry, apiServer: refused.said };
    const causes = otherCauses(refused);
    if (causes.length === 0) continue;
    if (!isForbidden(refused)) {
      const [reason, help] = [`the API server refuses it: ${causes.join("; ")}`, ["change what it names in this file"]];
      return { ...entry, verdict: "refused", reason, help, steps: [] };
    }
    const reason = "this user may not send a dry run of the file, so it is not known whether the API server accepts it";
    return plan.verdict === "applicable" ? { ...entry, verdict: "unknown", reason } : entry;
  }
  // A file may bring another webhook because the one of now does not answer.
  const problem = found.problem ?? (live && bringsOtherWebhook(file, live) ? undefined : found.conversionProblem);
  if (problem === undefined || plan.steps.every(({ kind }) => kind === "apply")) return entry;
  return { ...entry, verdict: "unknown", reason: `${plan.reason}, and its objects cannot be read: ${problem}` };
}

function refusal(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  throw error;
}

/**
 * Both wordings of the refusal that a migration takes away: of Kubernetes 1.36 and newer, and of older ones.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation/validation.go
 */
const MISSING_FROM_VERSIONS = /(?:missing from|must appear in) spec\.versions/;

/** What the API server refuses besides versions that storedVersions lists. */
function otherCauses({ causes, said }: ApiError): readonly string[] {
  const texts = causes.map(({ field, message = "" }) => (field ? `${field}: ${message}` : message));
  return (texts.length === 0 ? [said] : texts).filter((cause) => !MISSING_FROM_VERSIONS.test(cause));
}

const ROUNDED = "ksvm does not write this CRD, of which it would round integers beyond 2^53";

function notesOn(
  live: Crd,
  file: CrdManifest,
  planned: readonly Step[],
  { count, fieldVersions, problem, unreadableIn }: FoundObjects,
  losses: readonly Loss[] | undefined,
): readonly string[] {
  const { name, target } = file;
  const storage = storageVersion(live);
  const webhook = webhookOf(file.spec["conversion"]);
  const isAwaited = planned.some(({ kind, spec }) => kind === "serve" && webhookOf(spec?.["conversion"]) === webhook);
  const remedy = isAwaited ? "ksvm migrate -f --apply waits for it" : "start it before this file is applied";
  const fields = named(losses?.map(lossText) ?? []);
  return [
    [file.spec, live.spec].some(hasUnsafeInteger) && `${ROUNDED}: it has to be applied by kubectl`,
    losses === undefined && (count ?? 1) > 0 && `which fields of objects ${target} does not have is not known`,
    fields !== "" &&
      `its schema lacks ${fields}: clients no longer see that, and any write of an object deletes it, also a migration's`,
    fieldVersions !== undefined &&
      `${fieldVersionsText(fieldVersions)}: once that is gone, no client can apply them; ksvm migrate -f ends that`,
    bringsOtherWebhook(file, live) &&
      count !== 0 &&
      `it brings the conversion webhook (${webhook}): until that answers, no client reads or writes an object in ` +
        `another version than it is stored in; ${remedy}`,
    storage !== target &&
      planned.length > 0 &&
      planned.every(({ kind }) => kind !== "migrate") &&
      `it makes ${target} the storage version; objects stay stored in ${storage} until ksvm migrate ${name}`,
    unreadableIn !== undefined &&
      hasVersion(file, unreadableIn) &&
      `it brings ${unreadableIn} back, in which objects are stored: run ksvm doctor ${name} --repair before`,
    problem !== undefined && planned.length === 1 && `its objects cannot be listed: ${problem}`,
  ].filter((note) => note !== false);
}

/** What a try of all objects says against a file; `undefined` where it says nothing. */
function rejected(entry: CheckEntry, live: Crd, { failed, failures, fieldVersions }: Tally): CheckEntry | undefined {
  // Without a webhook every entry of managedFields is renamed, unless a value is of another type in the new schema.
  const versions = hasConversionWebhook(live) ? "" : Object.keys(fieldVersions).join(", ");
  if (failed === 0 && versions === "") return undefined;
  const texts = failures.map(({ name, namespace, reason }) => `${namespace ? `${namespace}/` : ""}${name}: ${reason}`);
  const reason =
    failed > 0
      ? `objects are refused in the storage version of this file (${failed}): ${named(texts, failed)}`
      : `a rewrite leaves ${versions} in managedFields: the file's schema refuses a value, or clients keep writing`;
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
  /** Rewrites every object, also where the CRD is clean, prunes and reports. @returns whether every object is */
  readonly migrate: () => Promise<boolean>;
  /** Asked before the first step. @throws {KsvmError} where this user may not write the objects, or migrate */
  readonly assertRights: (isMigration: boolean) => Promise<void>;
  /** How the API servers are found. */
  readonly apiServers: ApiServerOptions;
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

/** Four steps take four turns. Each write of another client takes one more. */
const MAX_TURNS = 20;

/**
 * Takes a CRD from what it is to what a file says: it does the first of the {@link steps} that are left, and looks
 * again. So each rests on what is there, and a second call goes on where the first one was killed.
 *
 * @throws {KsvmError} StorageVersionChanged where another client undoes the steps; whatever a request fails with
 */
export async function upgrade(client: Client, file: CrdManifest, options: UpgradeOptions): Promise<UpgradeEnd> {
  const { isApplied, migrate, signal } = options;
  const asked = { client, file, signal };
  const look = (): Promise<Crd | undefined> => findCrd(client, file.name, signal);
  let found = await look();
  if (found !== undefined && (await unfreezeLeftBehind(client, found, signal))) found = await look();
  const freezer = found && freezerOf(found.metadata);
  if (typeof freezer === "object") {
    const text = `"${freezer.identity}" is migrating it (Lease "${freezer.lease}"); wait for it to end`;
    throw new KsvmError("AlreadyMigrating", `Cannot change "${file.name}": ${text}`);
  }
  const entry = await survey(asked, found);
  const isMigration = entry.steps.some(({ kind }) => kind === "migrate");
  // Without --apply, and with nothing to migrate, it is left to say what check says.
  if (!isApplied && !isMigration) {
    const checked = await tryServed(asked, entry, found);
    return { outcome: checked.verdict === "applicable" ? "done" : "refused", entry: checked };
  }
  if (entry.steps.length > 0 && [file.spec, found?.spec].some(hasUnsafeInteger)) {
    const first = isMigration ? `: store ${file.target}, then ksvm migrate ${file.name} --force, then the file` : "";
    const help = [`use kubectl${first}`];
    return { outcome: "refused", entry: { ...entry, verdict: "refused", reason: ROUNDED, help, steps: [] } };
  }
  const unaborted = { client, file, signal: new AbortController().signal };
  const end = await takeSteps(asked, entry, options).catch(async (error: unknown) => {
    await handOver(unaborted).catch(() => undefined);
    throw error;
  });
  await handOver(unaborted);
  if (end.outcome !== "done" || !isApplied || !end.isRewritten) return end;
  // Until versions left, clients may have written objects in one. Then their managedFields name it.
  const last = await look();
  if (last === undefined) return end;
  const isAsked = (version: string): boolean => isLeaving(found ?? last, file, version);
  const { fieldVersions, problem } = await lookAtObjects(client, objectsOf(last), signal, isAsked, Infinity);
  if (problem === undefined) return fieldVersions && !(await migrate()) ? { outcome: "incomplete", entry } : end;
  throw new KsvmError("RetryBudgetExceeded", `The file is applied, but "${file.name}" cannot be listed: ${problem}`);
}

async function takeSteps(
  asked: Question,
  entry: CheckEntry,
  options: UpgradeOptions,
): Promise<UpgradeEnd & { readonly isRewritten?: boolean }> {
  const { client, file, signal } = asked;
  const { isApplied, migrate, onStep } = options;
  // `unknown` goes on: each step proves what it needs.
  if (entry.verdict === "refused" || entry.verdict === "data-loss") return { outcome: "refused", entry };
  let [tried, rewritten]: (string | undefined)[] = [];
  for (let turn = 0; ; turn++) {
    if (turn === MAX_TURNS) {
      const text =
        "other clients keep changing it; pause Argo CD, Flux or what else applies the old CRD, and run again";
      throw new KsvmError("StorageVersionChanged", `Cannot go on with "${file.name}": ${text}`);
    }
    const live = await findCrd(client, file.name, signal);
    const facts = { isLossless: entry.losses?.length === 0, hasGoneFields: entry.managedFields !== undefined };
    const plan = steps(live, file, { tried, rewritten, ...facts });
    const [step] = plan.steps;
    if (step === undefined) return { outcome: "refused", entry: { ...entry, ...plan } };
    // Without --apply it ends with the migration, and moves the storage version only for that.
    const done = { outcome: "done", entry, isRewritten: rewritten !== undefined } as const;
    const isMigration = plan.steps.some(({ kind }) => kind === "migrate");
    if (!isApplied && !isMigration) return done;
    if (turn === 0 && step.kind !== "apply") await options.assertRights(isMigration);
    onStep(step, entry.notes);
    try {
      const written = step.spec === undefined ? live : await write(asked, live, step.spec);
      if (step.kind === "apply") return done;
      if (live === undefined || written === undefined) continue;
      if (step.kind === "serve") {
        const refused = await tryObjects(asked, entry, live, written, options);
        if (refused !== undefined) return { outcome: "refused", entry: refused };
        // An API server that has not observed it can read nothing that the others store in that version next.
        const told = { forMs: options.maxIdleMs, onMissing: options.onWait, signal };
        await untilConverged(client, options.apiServers, [written], told);
        tried = epochOf(written);
      } else if (step.kind === "migrate") {
        // This call's serve step has tried them already. A call that begins after the flip has not.
        const refused = tried === undefined && (await tryObjects(asked, entry, live, live, options));
        if (refused) return { outcome: "refused", entry: refused };
        // Where a webhook converts, the migration takes entries of these versions out of managedFields.
        const all = live.spec.versions.map(({ name }) => name);
        const leaving = all.filter((name) => isLeaving(live, file, name)).join(",");
        await writeMetadata(asked, { uid: live.metadata.uid, annotations: { [LEAVING_VERSIONS]: leaving } });
        if (!(await migrate())) return { outcome: "incomplete", entry };
        // It begins again with a CRD that another client changed, and may have ended in another version.
        const after = await findCrd(client, file.name, signal);
        if (after === undefined || epochOf(after) !== epochOf(live)) continue;
        // The controller may leave pruning to another program, and the report says so.
        if (!isClean(after)) return { outcome: "incomplete", entry };
        rewritten = epochOf(live);
      }
    } catch (error) {
      // Another client wrote the CRD since it was read.
      if (whose(error) !== "conflict" && !(error instanceof EpochChanged)) throw error;
    }
  }
}

/**
 * Writes a CRD with a spec, and the metadata of the file over its own. It creates the CRD where there is none.
 * @throws {ApiError} a conflict where another client wrote it since it was read
 */
async function write(
  { client, file, signal }: Question,
  live: Crd | undefined,
  spec: object,
  dryRun = false,
): Promise<Crd> {
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, dryRun, signal };
  if (live === undefined) {
    const { annotations, apiVersion, labels, name } = file;
    const body = { apiVersion, kind: "CustomResourceDefinition", metadata: { name, labels, annotations }, spec };
    return retry(client, () => client.create<Crd>(CRDS, body, options), { signal });
  }
  const { resourceVersion, uid } = live.metadata;
  const labels = { ...live.metadata.labels, ...file.labels };
  const annotations = { ...live.metadata.annotations, ...file.annotations };
  const laid = { labels, annotations, ...(dryRun ? {} : { resourceVersion, uid }) };
  const body = [
    ...Object.entries(laid).map(([field, value]) => ({ op: "add", path: `/metadata/${field}`, value })),
    // The whole spec: what is left out is taken away.
    { op: "replace", path: "/spec", value: spec },
  ];
  return retry(client, () => client.patch<Crd>(`${CRDS}/${file.name}`, body, options, JSON_PATCH), { signal });
}

const POLL_MS = 1_000;

/**
 * Tries to write each object in the file's storage version by a dry run. It waits until that version is served and its
 * webhook answers. Where an object is refused, the spec is put back to what this run found.
 *
 * @param before the CRD as it was; the same where nothing was written
 * @returns what speaks against the file, if anything does
 */
async function tryObjects(
  asked: Question,
  entry: CheckEntry,
  before: Crd,
  served: Crd,
  options: Pick<UpgradeOptions, "maxIdleMs" | "maxInFlight" | "maxQps" | "onWait">,
): Promise<CheckEntry | undefined> {
  const { client, file, signal } = asked;
  const versions = served.spec.versions.map((one) => ({ ...plain(one), storage: one.name === file.target }));
  const target = targetOf({ ...served, spec: { ...plain(served.spec), versions } });
  let [deadline, furthest] = [client.clock.monotonic() + options.maxIdleMs, 0];
  // Each try begins with the first object: only one that gets further is progress.
  const onProgress = ({ current, failed, gone, newer, rewritten }: Tally): void => {
    const done = current + failed + gone + newer + rewritten;
    if (done > furthest) [deadline, furthest] = [client.clock.monotonic() + options.maxIdleMs, done];
  };
  for (let pauseMs = served === before ? 0 : POLL_MS; ; pauseMs = POLL_MS) {
    // The handlers of an API server follow a change of the CRD a moment later.
    await client.clock.sleep(pauseMs, signal);
    try {
      const query = { limit: 1 };
      await client.list(collectionPath(target.resource), { query, accept: METADATA_LIST, signal }).catch((error) => {
        // The rewrite names the object that cannot be converted.
        if (!isConversionRefusal(error)) throw error;
      });
      const run = { limiter: new Limiter(client, options), dryRun: true, signal, onPage: () => undefined, onProgress };
      const refused = rejected(entry, served, await rewriteAll(client, target, run));
      if (refused !== undefined) await takeBack(asked, before, served);
      return refused;
    } catch (error) {
      const mayPass = ["webhook", "apiServer", "gone"].includes(whose(error) ?? "");
      if (signal.aborted || !mayPass || client.clock.monotonic() >= deadline) {
        await takeBack({ client, file, signal: new AbortController().signal }, before, served);
        signal.throwIfAborted();
        throw error;
      }
      const now = await findCrd(client, file.name, signal);
      if (now === undefined || epochOf(now) !== epochOf(served)) throw new EpochChanged(file.name, "its spec changed");
      options.onWait(messageOf(error));
    }
  }
}

/** Puts the spec back as it was, unless another client has changed it since. */
async function takeBack(asked: Question, before: Crd, served: Crd): Promise<void> {
  if (served === before) return;
  const live = await findCrd(asked.client, asked.file.name, asked.signal);
  if (live === undefined || epochOf(live) !== epochOf(served)) return;
  await write(asked, live, before.spec);
}

/** Gives up the ownership of what the steps wrote: a server-side apply of the file then meets no conflict. */
async function handOver(asked: Question): Promise<void> {
  for (let turn = 0; ; turn++) {
    const live = await findCrd(asked.client, asked.file.name, asked.signal);
    const { managedFields = [], resourceVersion, uid } = live?.metadata ?? {};
    const left = managedFields.filter(({ manager }) => manager !== UPGRADE_FIELD_MANAGER);
    if (left.length === managedFields.length || turn === MAX_TURNS) return;
    const annotations = { [LEAVING_VERSIONS]: null };
    const written = writeMetadata(asked, { uid, resourceVersion, managedFields: left, annotations });
    await written.catch((error: unknown) => {
      if (whose(error) !== "conflict") throw error;
    });
  }
}

function writeMetadata({ client, file, signal }: Question, metadata: object): Promise<Crd> {
  const options = { fieldManager: UPGRADE_FIELD_MANAGER, signal };
  return retry(client, () => client.patch<Crd>(`${CRDS}/${file.name}`, { metadata }, options), { signal });
}
