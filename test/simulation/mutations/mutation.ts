/** One text of one file that another one takes the place of. */
export interface Edit {
  /** Below `src/`. */
  readonly file: string;
  /** Stands once in the file. */
  readonly from: string;
  readonly to: string;
}

/** A seed that breaks something with a mutation, and nothing without it. */
export interface FoundIn {
  readonly seed: number;
  /** The kind of the violation, as `violationKind()` has it, and after a colon what it means. */
  readonly breaks: string;
}

/** A change of the code that makes it wrong. */
export interface Mutation {
  /** What is wrong then. */
  readonly name: string;
  /** More than one where each of several safeguards would be enough by itself. */
  readonly edits: readonly Edit[];
  /** What finds it: within so many seeds. `make test-mutations` plays that seed. Missing where none does. */
  readonly found?: FoundIn;
  /** Why the simulation does not find it. */
  readonly survives?: string;
}
