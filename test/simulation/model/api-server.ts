import type { ModelAnswer, ModelIo, ModelRequest, ServerClock, WatchSink } from "./answers.ts";
import {
  ADMISSION_PREFIXES,
  AdmissionRegistry,
  configHashOf,
  deleteIdentityLease,
  type Encryption,
  PLAIN_TEXT,
  renewIdentityLease,
  timeText,
  type WatchCacheState,
} from "./context.ts";
import { type EtcdEntry, isSame, type ModelObject, type SimEtcd, without } from "./etcd.ts";
import { managedByUpdate } from "./fields.ts";
import {
  CRD_PREFIX,
  crdFactsOf,
  CrdRegistry,
  type CrdStorage,
  type Release,
  RELEASE_1_37,
  type ServedKind,
} from "./kinds.ts";
import { type ListRequest, OpenWatch } from "./reads.ts";
import { answerRequest, type DenyRule, type RequestContext } from "./request-handler.ts";
import { CRD_FINALIZER, type CrdCondition, type CrdStatus, withCondition, withManaged } from "./strategies.ts";
import { markedForDeletion } from "./writes.ts";

/** What a {@link SimApiServer} is made of. */
interface SimApiServerOptions {
  readonly etcd: SimEtcd;
  /** The host name, as the identity Lease has it. */
  readonly name: string;
  readonly clock: ServerClock;
  readonly io: ModelIo;
  /** @default {@link RELEASE_1_37} */
  readonly release?: Release;
  /** @default no value is encrypted */
  readonly encryption?: Encryption;
  /**
   * Whether every change of a CRD, a webhook configuration or a policy is in force at once, and the controllers of CRDs
   * run after every write. Otherwise only {@link SimApiServer.followCrds} and its like do that.
   * @default true
   */
  readonly isPrompt?: boolean;
  /** @default as many as a client asks for */
  readonly pageSize?: number;
}

/** One kube-apiserver of a simulated cluster. It answers requests, and follows what others write when it is told to. */
export class SimApiServer implements RequestContext {
  readonly etcd: SimEtcd;
  readonly clock: ServerClock;
  readonly io: ModelIo;
  readonly name: string;
  readonly pageSize: number;
  readonly handlers = new CrdRegistry();
  readonly discovery = new CrdRegistry();
  readonly admission = new AdmissionRegistry();
  release: Release;
  /** The keys that it writes with and can read. */
  encryption: Encryption;
  /** How often it read another encryption configuration since it started. */
  reloads = 0;
  /** What users may not do. */
  denied: readonly DenyRule[] = [];
  isPrompt: boolean;
  cache: WatchCacheState;
  crdsSeen: number;
  #areCrdsFilled = true;
  readonly #watches = new Set<OpenWatch>();
  /** When its process started, in milliseconds since the Unix epoch. */
  startedAt: number;
  readonly #unsubscribe: () => void;
  #isCachePaused = false;

  constructor({ clock, encryption, etcd, io, isPrompt = true, name, pageSize, release }: SimApiServerOptions) {
    this.etcd = etcd;
    this.clock = clock;
    this.io = io;
    this.name = name;
    this.pageSize = pageSize ?? Number.POSITIVE_INFINITY;
    this.release = release ?? RELEASE_1_37;
    this.encryption = encryption ?? PLAIN_TEXT;
    this.isPrompt = isPrompt;
    this.startedAt = clock.now();
    this.cache = this.#freshCache();
    this.crdsSeen = etcd.revision;
    this.#unsubscribe = etcd.onRevision((entry) => this.#onRevision(entry));
    this.#followAll();
  }

  /** It is gone for good. */
  stop(): void {
    this.#unsubscribe();
    this.endWatches(new Error("socket hang up"));
  }

  /** Reads its encryption configuration again; nothing happens where that is as it was. */
  reload(encryption: Encryption): void {
    if (configHashOf(encryption) === configHashOf(this.encryption)) return;
    this.encryption = encryption;
    this.reloads++;
  }

  /** Its watch of CRDs comes to a revision: what its handlers and its discovery follow is behind that. */
  seeCrds(revision: number): void {
    this.crdsSeen = Math.min(Math.max(this.crdsSeen, revision), this.etcd.revision);
  }

  get areCrdsFilled(): boolean {
    return this.#areCrdsFilled;
  }

  /** Empties its watch cache of CRDs, as where it cannot read one of them from etcd any more, or fills it. What follows CRDs goes on by {@link seeCrds}. */
  fillCrds(areFilled: boolean): void {
    this.#areCrdsFilled = areFilled;
    const ended = areFilled ? [] : [...this.#watches].filter(({ kind }) => kind.prefix === CRD_PREFIX);
    for (const watch of ended) {
      watch.end();
      this.#watches.delete(watch);
    }
  }

  /** Has the request handler follow CRDs: all, or one as it was at a revision. */
  followCrds(only?: string, upTo = this.etcd.revision): void {
    for (const name of only === undefined ? this.#crdNames(this.handlers) : [only]) {
      const ended = this.#followIn(this.handlers, name, upTo);
      if (ended === undefined) continue;
      for (const watch of this.#watches) {
        if (watch.kind.crd?.facts.uid === ended.facts.uid) watch.end();
      }
    }
  }

  /** Has discovery follow CRDs: all, or one as it was at a revision. */
  followDiscovery(only?: string, upTo = this.etcd.revision): void {
    for (const name of only === undefined ? this.#crdNames(this.discovery) : [only]) {
      this.#followIn(this.discovery, name, upTo);
    }
  }

  #followIn(registry: CrdRegistry, name: string, upTo: number): CrdStorage | undefined {
    const { revision: now, timeline } = this.etcd;
    const revision = Math.min(upTo, now);
    if (!registry.isBehind(name, revision)) return undefined;
    return registry.follow(name, timeline.get(`${CRD_PREFIX}${name}`, revision), { revision, now });
  }

  /** Puts webhook configurations and policies in force as they are now. */
  followAdmission(): void {
    this.admission.follow((prefix) => this.etcd.range(prefix));
  }

  /** Does what the controllers of CRDs do, until nothing is left to do. */
  runControllers(): void {
    while (runCrdControllers(this.etcd, this.clock.now()));
  }

  /** Keeps the watch cache, and every watch, at what they show now. */
  pauseCache(): void {
    this.#isCachePaused = true;
  }

  /** Has the watch cache follow again, up to now or to a revision. */
  resumeCache(upTo?: number): void {
    this.#isCachePaused = upTo !== undefined;
    for (const entry of this.etcd.timeline.since(this.cache.revision)) {
      if (upTo === undefined || entry.modRevision <= upTo) this.#advance(entry);
    }
  }

  /** Forgets events and ends all watches: one that is opened from before now gets 410. */
  forgetEvents(): void {
    this.cache = { ...this.cache, since: this.cache.revision };
    for (const watch of this.#watches) watch.end();
    this.#watches.clear();
  }

  /** Sends bookmarks that are due, and ends watches whose time is over. */
  tick(): void {
    for (const watch of this.#watches) {
      watch.tick();
      if (watch.isEnded) this.#watches.delete(watch);
    }
  }

  /** Ends all watches, in order or with an error. */
  endWatches(error?: Error): void {
    for (const watch of this.#watches) watch.end(error);
    this.#watches.clear();
  }

  renewLease(): void {
    renewIdentityLease(this.etcd, this.name, { process: String(this.startedAt), now: this.clock.now() });
  }

  deleteLease(): void {
    deleteIdentityLease(this.etcd, this.name);
  }

  /** Answers a request. It rejects only where the model itself is at fault. */
  handle(request: ModelRequest): Promise<ModelAnswer> {
    return answerRequest(this, request);
  }

  /** Opens a watch. @returns what ends it from the side of the client */
  open(asked: ListRequest, sink: WatchSink): () => void {
    const watch = new OpenWatch(this, asked, sink);
    this.#watches.add(watch);
    watch.begin(asked.query.get("resourceVersion") ?? "");
    if (watch.isEnded) this.#watches.delete(watch);
    return () => {
      watch.close();
      this.#watches.delete(watch);
    };
  }

  /** Called after each write through this API server. */
  wrote(kind: ServedKind): void {
    const isAwaited = kind.prefix === CRD_PREFIX || kind.crd?.facts.isTerminating === true;
    if (this.isPrompt && isAwaited) this.runControllers();
  }

  #freshCache(): WatchCacheState {
    return { revision: this.etcd.revision, since: this.etcd.revision };
  }

  #followAll(): void {
    this.followCrds();
    this.followDiscovery();
    this.followAdmission();
  }

  #crdNames(registry: CrdRegistry): readonly string[] {
    const known = [...registry.all()].map(({ facts }) => facts.name);
    return [...new Set([...known, ...this.etcd.range(CRD_PREFIX).map(({ key }) => key.slice(CRD_PREFIX.length))])];
  }

  #onRevision(entry: EtcdEntry): void {
    if (!this.#isCachePaused) this.#advance(entry);
    if (!this.isPrompt) return;
    if (entry.key.startsWith(CRD_PREFIX)) {
      this.seeCrds(entry.modRevision);
      this.followCrds(entry.key.slice(CRD_PREFIX.length));
      this.followDiscovery(entry.key.slice(CRD_PREFIX.length));
    } else if (ADMISSION_PREFIXES.some((prefix) => entry.key.startsWith(prefix))) {
      this.followAdmission();
    }
  }

  #advance(entry: EtcdEntry): void {
    this.cache = { ...this.cache, revision: entry.modRevision };
    for (const watch of this.#watches) watch.deliver(entry);
  }
}

/**
 * Does what the controllers of kube-apiserver do with CRDs: accepts their names, establishes them, and empties those that
 * are deleted. Each step is a write of its own.
 * @param now milliseconds since the Unix epoch
 * @returns whether anything was written
 */
function runCrdControllers(etcd: SimEtcd, now: number): boolean {
  const { revision } = etcd;
  for (const entry of etcd.range(CRD_PREFIX)) {
    if (entry.object.metadata.deletionTimestamp === undefined) establish(etcd, entry, now);
    else finalize(etcd, entry, now);
  }
  return etcd.revision !== revision;
}

/** https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/status/naming_controller.go */
function establish(etcd: SimEtcd, entry: EtcdEntry, now: number): void {
  const { names } = entry.object["spec"] as { readonly names: unknown };
  const status = (entry.object["status"] ?? {}) as CrdStatus;
  const isOn = (type: string): boolean =>
    (status.conditions ?? []).some((one) => one.type === type && one.status === "True");
  if (isSame(status.acceptedNames, names) && isOn("Established")) return;
  const condition = (type: string, reason: string, message: string, isTrue = true): CrdCondition => {
    return { type, status: isTrue ? "True" : "False", lastTransitionTime: timeText(now), reason, message };
  };
  let next: CrdStatus = { ...status, acceptedNames: names };
  if (!isOn("NamesAccepted"))
    next = withCondition(next, condition("NamesAccepted", "NoConflicts", "no conflicts found"));
  if (isOn("Established")) {
    write(etcd, entry, { status: next, now });
    return;
  }
  next = withCondition(next, condition("Established", "Installing", INSTALLING, false));
  const first = write(etcd, entry, { status: next, now });
  if (first === undefined) return;
  const established = condition("Established", "InitialNamesAccepted", INSTALLING);
  write(etcd, first, { status: withCondition(next, established), now });
}

const INSTALLING = "the initial names have been accepted";
/**
 * Deletes the objects of a CRD, then the CRD. Objects that finalizers hold are waited for.
 *
 * https://github.com/kubernetes/kubernetes/blob/v1.36.0/staging/src/k8s.io/apiextensions-apiserver/pkg/controller/finalizer/crd_finalizer.go
 */
function finalize(etcd: SimEtcd, entry: EtcdEntry, now: number): void {
  const { finalizers = [] } = entry.object.metadata;
  if (!finalizers.includes(CRD_FINALIZER)) return;
  const { group, kinds, names } = crdFactsOf(entry);
  const kind = [...kinds.values()][0] as ServedKind;
  const objects = etcd.range(`/registry/${group}/${names.plural}/`);
  for (const { encryptionKey, key, modRevision, object } of objects) {
    const marked = markedForDeletion(kind, object, now);
    if (marked === undefined) etcd.delete(key, modRevision);
    else if (marked !== object) etcd.put(key, { object: marked, encryptionKey }, modRevision);
  }
  if (etcd.range(`/registry/${group}/${names.plural}/`).length > 0) return;
  const left = finalizers.filter((name) => name !== CRD_FINALIZER);
  if (left.length === 0) {
    etcd.delete(entry.key, entry.modRevision);
    return;
  }
  const metadata = { ...without(entry.object.metadata, "finalizers"), finalizers: left };
  etcd.put(entry.key, { object: { ...entry.object, metadata } }, entry.modRevision);
}

/** Writes the status as kube-apiserver does by its own client. */
function write(
  etcd: SimEtcd,
  entry: EtcdEntry,
  { now, status }: { readonly status: CrdStatus; readonly now: number },
): EtcdEntry | undefined {
  const changed: ModelObject = { ...entry.object, status };
  const managed = managedByUpdate(entry.object, changed, {
    manager: "kube-apiserver",
    apiVersion: entry.object.apiVersion,
    subresource: "status",
    time: timeText(now),
    ignored: ["spec"],
  });
  return etcd.put(entry.key, { object: withManaged(changed, managed) }, entry.modRevision);
}
