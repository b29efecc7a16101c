/** One text of one file that another one takes the place of. */
export interface Edit {
  /** Below `src/`. */
  readonly file: string;
  /** Stands once in the file. */
  readonly from: string;
  readonly to: string;
}

/** A change of the code that makes it wrong. */
export interface Mutation {
  /** What is wrong then. */
  readonly name: string;
  /** More than one where each of several safeguards would be enough by itself. */
  readonly edits: readonly Edit[];
  /** Within so many seeds the simulation finds it: twice as many as it took when it was measured. Missing where it does not. */
  readonly withinSeeds?: number;
  /** Why the simulation does not find it. */
  readonly survives?: string;
}
