/** The outside of a command, so that commands touch neither the process nor its environment. */
export interface CliIo {
  readonly stdout: NodeJS.WritableStream & {
    readonly isTTY?: boolean;
    readonly columns?: number;
    readonly rows?: number;
  };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** Where a terminal's answers come from. @default nobody can be asked */
  readonly stdin?: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  /** Aborted by Ctrl-C, SIGTERM or SIGHUP, with a KsvmError of code Interrupted. */
  readonly signal: AbortSignal;
  /** Told once CRDs may be frozen from here. @default nobody */
  readonly onMayFreeze?: () => void;
}
