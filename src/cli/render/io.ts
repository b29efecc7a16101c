/** The outside of a command, so that commands touch neither the process nor its environment. */
export interface CliIo {
  readonly stdout: NodeJS.WritableStream & {
    readonly isTTY?: boolean;
    readonly columns?: number;
    readonly rows?: number;
  };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean };
  /** Where the answers of a user at a terminal come from. @default no questions are asked */
  readonly stdin?: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  /** Aborted by Ctrl-C, SIGTERM or SIGHUP, with a KsvmError of code Interrupted. */
  readonly signal: AbortSignal;
  /** Called before this process may freeze a CRD. @default not called */
  readonly onMayFreeze?: () => void;
}
