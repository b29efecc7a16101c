import type { DenyRule } from "./access-table.ts";
import { AdmissionRegistry, ADMISSION_PREFIXES } from "./admission-registry.ts";
import { runCrdControllers } from "./crd-controllers.ts";
import { CRD_PREFIX, CrdRegistry } from "./crd-registry.ts";
import { configHashOf, type Encryption, PLAIN_TEXT } from "./encryption-configuration.ts";
import type { SimEtcd } from "./etcd.ts";
import { deleteIdentityLease, renewIdentityLease } from "./identity-leases.ts";
import type { ListRequest } from "./lists.ts";
import { answerRequest, type RequestContext } from "./request-handler.ts";
import { type Release, RELEASE_1_36 } from "./resource-table.ts";
import type { CrdStorage, ServedKind } from "./served-kinds.ts";
import type { WatchCacheState } from "./server-context.ts";
import type { EtcdEntry } from "./timeline.ts";
import type { ModelAnswer, ModelIo, ModelRequest, ServerClock, WatchSink } from "./types.ts";
import { convertAhead, fillAhead } from "./watch-cache-fill.ts";
import { OpenWatch } from "./watches.ts";

/** What a {@link SimApiServer} is made of. */
export interface SimApiServerOptions {
  readonly etcd: SimEtcd;
  /** The host name, as the identity Lease has it. */
  readonly name: string;
  readonly clock: ServerClock;
  readonly io: ModelIo;
  /** @default {@link RELEASE_1_36} */
  readonly release?: Release;
  /** @default no value is encrypted */
  readonly encryption?: Encryption;
  /**
   * Whether every change of a CRD, a webhook configuration or a policy is in force at once, and the controllers of CRDs
   * run after every write. Otherwise only {@link SimApiServer.followCrds} and its like do that.
   * @default true
   */
  readonly isPrompt?: boolean;
}

/** One kube-apiserver of a simulated cluster. It answers requests, and follows what others write when it is told to. */
export class SimApiServer implements RequestContext {
  readonly etcd: SimEtcd;
  readonly clock: ServerClock;
  readonly io: ModelIo;
  readonly name: string;
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
  readonly initializing = new Set<string>();
  readonly #watches = new Set<OpenWatch>();
  /** When its process started, in milliseconds since the Unix epoch. */
  startedAt: number;
  readonly #unsubscribe: () => void;
  #isCachePaused = false;

  constructor({ clock, encryption, etcd, io, isPrompt = true, name, release }: SimApiServerOptions) {
    this.etcd = etcd;
    this.clock = clock;
    this.io = io;
    this.name = name;
    this.release = release ?? RELEASE_1_36;
    this.encryption = encryption ?? PLAIN_TEXT;
    this.isPrompt = isPrompt;
    this.startedAt = clock.now();
    this.cache = this.#freshCache();
    this.crdsSeen = etcd.revision;
    this.#unsubscribe = etcd.onRevision((entry) => this.#onRevision(entry));
    this.#followAll();
  }

  /** Begins again, as another process: what it knew is gone, and it knows what etcd has now. */
  restart(): void {
    this.endWatches(new Error("socket hang up"));
    this.startedAt = this.clock.now();
    this.reloads = 0;
    this.#isCachePaused = false;
    this.cache = this.#freshCache();
    this.crdsSeen = this.etcd.revision;
    this.#areCrdsFilled = true;
    this.handlers.clear();
    this.discovery.clear();
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
      const before = this.handlers.get(name);
      const ended = this.#followIn(this.handlers, name, upTo);
      const handler = this.handlers.get(name);
      if (handler !== undefined && handler.since !== before?.since) {
        fillAhead(this, handler);
      }
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
    const { revision, timeline } = this.cache;
    for (const entry of timeline.since(revision)) {
      if (upTo === undefined || entry.modRevision <= upTo) this.#advance(entry);
    }
  }

  /** Forgets events and ends all watches: one that is opened from before now gets 410. */
  forgetEvents(): void {
    this.cache = { ...this.cache, since: this.cache.revision };
    for (const watch of this.#watches) watch.end();
    this.#watches.clear();
  }

  /** The watches that clients have open. */
  get watches(): ReadonlySet<OpenWatch> {
    return this.#watches;
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
    return { timeline: this.etcd.timeline, revision: this.etcd.revision, since: this.etcd.revision };
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
    // After a restore the cache shows the past that was undone, until the process is restarted.
    if (!this.#isCachePaused && this.cache.timeline === this.etcd.timeline) this.#advance(entry);
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
    const { since, timeline } = this.cache;
    this.cache = { timeline, revision: entry.modRevision, since };
    for (const watch of this.#watches) watch.deliver(entry);
    const handler = this.handlers.ofKey(entry.key);
    if (handler !== undefined) convertAhead(this, handler, entry);
  }
}
