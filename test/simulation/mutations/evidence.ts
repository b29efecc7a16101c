import type { Mutation } from "./mutation.ts";

const EVIDENCE = "migrator/freeze-evidence.ts";
const FINDER = "apiservers/api-server-finder.ts";

/** What is wrong about the API servers: who they are, what each of them shows. */
export const EVIDENCE_MUTATIONS: readonly Mutation[] = [
  {
    name: "ask by a GET whether an API server has followed",
    edits: [
      {
        file: "apiservers/cached-crd.ts",
        from: "return (await listNamed<PartialObjectMetadata>(transport, CRDS, { name }, options)).object;",
        to: "const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`; return (await transport.request<PartialObjectMetadata>({ method: 'GET', path, query: { resourceVersion: notOlderThan }, signal })).body ?? options;",
      },
    ],
    survives:
      "no seed has an API server that cannot fill its watch cache of CRDs: regressions/watch-cache-of-crds-that-is-not-filled.json has one",
  },
  {
    name: "do not prove again before the prune",
    survives: "the watch of the CRD tells what happened in between: that needs both",
    edits: [
      {
        file: "migrator/crd-run.ts",
        from: "proveAgain: () => this.#evidence.repeat(() => readCrd(this.#context, this.#crdName)),",
        to: "proveAgain: async () => undefined,",
      },
    ],
  },
  {
    name: "an API server that does not say what it knows is not behind",
    survives:
      "a seed lets no API server be behind for longer than late writes are waited for: the plan lag-that-a-refusal-hides does",
    edits: [
      {
        file: "apiservers/converge.ts",
        from: "      throw error;\n    }\n    return true;\n",
        to: "      throw error;\n    }\n    return false;\n",
      },
    ],
  },
  {
    name: "nobody looks for API servers that are behind before the freeze is proven",
    survives:
      "a seed lets no API server be behind for longer than late writes are waited for: the plans lag-during-the-proof, lag-that-ends-as-freeze-not-proven and question-that-is-held-and-passes do",
    edits: [
      {
        file: "migrator/freeze-evidence.ts",
        from: "const look = frozen === undefined ? async () => undefined : this.#firstLook(frozen);",
        to: "const look = async () => undefined; void this.#firstLook;",
      },
    ],
  },
  {
    name: "an API server that joins during the last look is not looked for",
    found: { seed: 290524, breaks: "told: it says migrated, and an object is encrypted with another key" },
    edits: [
      {
        file: "migrator/built-in-evidence.ts",
        from: "    await arrivals.catchUp(this.#context);\n    this.#assertNoneCame(foundation);\n",
        to: "    void arrivals;\n",
      },
    ],
  },
  {
    name: "believe one API server for all",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/ask-all.ts",
        from: "(apiServers.clients ?? []).map(",
        to: "(apiServers.clients ?? []).slice(0, 1).map(",
      },
    ],
  },
  {
    name: "prove the freeze on one API server alone",
    found: {
      seed: 859,
      breaks: "freeze: user changed the storage version of the CRD from v1 to v1alpha1 while a run rests on its freeze",
    },
    edits: [
      {
        file: EVIDENCE,
        from: 'const proven: ApiServers = { mode: "each", clients: apiServers.clients ?? [client] };',
        to: 'const proven: ApiServers = { mode: "each", clients: (apiServers.clients ?? [client]).slice(0, 1) };',
      },
    ],
  },
  {
    name: "any refusal proves the freeze",
    survives:
      "something between has to answer the proof in the place of an API server whose guard is late, and a user to change the storage version in that moment: test/freeze/freeze-proof.test.ts finds it",
    edits: [
      {
        file: "freeze/freeze-proof.ts",
        from: "if (error instanceof ApiError && isDenialBy(guard, crd.metadata.name, error.said)) {",
        to: "void isDenialBy; void guard; if (error instanceof ApiError) {",
      },
    ],
  },
  {
    name: "a call that fails proves the freeze",
    survives:
      "something between has to answer the proof in the place of an API server whose guard is late, and a user to change the storage version in that moment: test/freeze/freeze-proof.test.ts finds it",
    edits: [
      {
        file: "freeze/freeze-proof.ts",
        from: "if (error instanceof ApiError && isDenialBy(guard, crd.metadata.name, error.said)) {",
        to: "void isDenialBy; void guard; {",
      },
    ],
  },
  {
    name: "do not look at discovery",
    survives:
      "an API server whose watch of CRDs has seen the freeze is behind by less than late writes are waited for: that needs both",
    edits: [
      {
        file: "apiservers/converge.ts",
        from: "return reason === undefined ? undefined : { reason, silent: false };",
        to: "void reason; return undefined;",
      },
    ],
  },
  {
    name: "look neither at discovery nor at the watches of CRDs",
    found: { seed: 5, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/converge.ts",
        from: "return reason === undefined ? undefined : { reason, silent: false };",
        to: "void reason; return undefined;",
      },
      {
        file: "apiservers/converge.ts",
        from: "if (behind !== undefined) {",
        to: "if (behind === null) {",
      },
    ],
  },
  {
    name: "the hash of an earlier state of the CRD is enough",
    found: { seed: 286, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/converge.ts",
        from: "if (behind !== undefined) {",
        to: "if (behind === null) {",
      },
    ],
  },
  {
    name: "prune although an API server fell behind",
    survives: "an API server whose watch of CRDs has seen the freeze does not fall behind it again",
    edits: [
      {
        file: EVIDENCE,
        from: "const isBehind = lagged && failed === undefined;",
        to: "void lagged; void failed; const isBehind = false;",
      },
    ],
  },
  {
    name: "prune although API servers came or went",
    survives: "an API server that joins knows every CRD as it is, and writes no old version",
    edits: [
      {
        file: EVIDENCE,
        from: "if (isBehind || fingerprint !== this.#atStart) {",
        to: "if (isBehind) {",
      },
    ],
  },
  {
    name: "an API server that only its identity Lease shows is not asked",
    found: { seed: 271, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/api-server-mode.ts",
        from: 'liveLeases > addresses ? "missing" : "each";',
        to: 'liveLeases > addresses ? "each" : "each";',
      },
    ],
  },
  {
    name: "ask the address of the kubeconfig where one API server lives",
    found: {
      seed: 20_332,
      breaks: "freeze: another client changes the storage version while a run rests on its freeze",
    },
    edits: [
      {
        file: FINDER,
        from: "const [url] = shutdownDelayMs > 0 ? urls : [];",
        to: "const [url] = shutdownDelayMs < 0 ? urls : [];",
      },
    ],
  },
  {
    name: "wait without end for the only API server at its own address",
    found: { seed: 125_565, breaks: "liveness: a run does not end" },
    edits: [
      {
        file: FINDER,
        from: "const mayOtherAnswer = clock.monotonic() - firstLookAt <= shutdownDelayMs;",
        to: "const mayOtherAnswer = clock.monotonic() - firstLookAt >= 0;",
      },
      {
        file: "apiservers/server-addresses.ts",
        from: "      versionIn(body);\n",
        to: "      void [body, versionIn];\n",
      },
    ],
  },
  {
    name: "do not tell API servers behind one address apart",
    survives: "20 samples meet each of them: that needs both",
    edits: [
      {
        file: FINDER,
        from: 'found.mode === "sampled" && Math.max(leases.length, urls.length) > 1;',
        to: 'found.mode === "sampled" && Math.max(leases.length, urls.length) > 99;',
      },
    ],
  },
  {
    name: "of several API servers behind one address a single one is enough",
    found: { seed: 308, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [{ file: FINDER, from: "if (clients.length < wanted) {", to: "if (clients.length < 1) {" }],
  },
  {
    name: "do not tell API servers behind one address apart, and take one sample of them",
    found: { seed: 308, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: FINDER,
        from: 'found.mode === "sampled" && Math.max(leases.length, urls.length) > 1;',
        to: 'found.mode === "sampled" && Math.max(leases.length, urls.length) > 99;',
      },
      { file: "apiservers/ask-all.ts", from: "export const SAMPLES = 20;", to: "export const SAMPLES = 1;" },
    ],
  },
  {
    name: "an identity Lease has expired by any clock",
    found: { seed: 1_120, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/control-plane-objects.ts",
        from: "renewedAt + durationMs <= Math.min(serverNow, localNow)",
        to: "renewedAt + durationMs <= Math.max(serverNow, localNow)",
      },
    ],
  },
  {
    name: "an identity Lease that seems to have expired is not watched",
    survives: "no clock of the simulation makes one look expired by all clocks at once: that needs both",
    edits: [
      {
        file: "apiservers/lease-sightings.ts",
        from: "const STANDS_STILL_MS = 30_000;",
        to: "const STANDS_STILL_MS = 0;",
      },
    ],
  },
  {
    name: "an identity Lease has expired by any clock, and is not watched",
    found: { seed: 1_120, breaks: "S1: objects in a version that ksvm pruned" },
    edits: [
      {
        file: "apiservers/control-plane-objects.ts",
        from: "renewedAt + durationMs <= Math.min(serverNow, localNow)",
        to: "renewedAt + durationMs <= Math.max(serverNow, localNow)",
      },
      {
        file: "apiservers/lease-sightings.ts",
        from: "const STANDS_STILL_MS = 30_000;",
        to: "const STANDS_STILL_MS = 0;",
      },
    ],
  },
];
