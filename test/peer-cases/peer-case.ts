/** A file of another project that has cases, by its bytes. It is never copied into this repository. */
export interface PinnedSource {
  readonly path: string;
  /** Hexadecimal. */
  readonly sha256: string;
}

/** Another migrator, at the version that its cases were read at. */
export interface Peer {
  readonly name: string;
  readonly project: string;
  readonly version: string;
  readonly sources: readonly PinnedSource[];
  /** The test that runs the cases against ksvm. */
  readonly runBy: string;
}

/** A case of another migrator's own tests, in this project's words. */
export interface PeerCase {
  /** What the test that runs it begins with; unique among the cases of a peer. */
  readonly id: string;
  /** Upstream's names: the test function, and its row after a slash. Rows that differ only in what ksvm does not have share a case. */
  readonly tests: readonly string[];
  readonly situation: string;
  readonly peerDoes: string;
  readonly ksvmDoes: string;
  /** Why no test runs it. @default a test does */
  readonly notApplicable?: string;
}

/** Another migrator with all of its cases. */
export interface PeerCases {
  readonly peer: Peer;
  readonly cases: readonly PeerCase[];
}

/** The ids of the cases that a test runs. */
export type RunnableId<C extends readonly PeerCase[]> = Exclude<C[number], { readonly notApplicable: string }>["id"];
