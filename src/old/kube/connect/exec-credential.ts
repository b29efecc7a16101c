/** The part of a kubeconfig's `exec` that this program reads. */
export interface ExecSpec {
  readonly apiVersion?: string;
  readonly command?: string;
  readonly args?: readonly string[] | null;
  readonly env?: readonly { readonly name: string; readonly value: string }[] | null;
  readonly installHint?: string;
  readonly provideClusterInfo?: boolean;
  readonly interactiveMode?: string;
}

/** What an exec plugin hands out. */
export interface ExecCredential {
  readonly token: string | undefined;
  /** PEM. */
  readonly cert: string | undefined;
  /** PEM. */
  readonly key: string | undefined;
  /** Milliseconds since the Unix epoch; `undefined` where it never expires. */
  readonly expiresAt: number | undefined;
}

/** The cluster as an exec plugin is told of it, where it asks for that. */
export interface ExecCluster {
  readonly server: string;
  readonly "tls-server-name"?: string;
  readonly "insecure-skip-tls-verify"?: boolean;
  readonly "certificate-authority-data"?: string;
  readonly "proxy-url"?: string;
  readonly config: unknown;
}

/** https://kubernetes.io/docs/reference/config-api/client-authentication.v1/ and its v1beta1. */
const API_VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const INTERACTIVE_MODES = ["Never", "IfAvailable", "Always"];

/** What keeps an `exec` from being used, as client-go sees it. @returns `undefined` where nothing does */
export function problemOf(spec: ExecSpec, isTerminal: boolean): string | undefined {
  const { apiVersion = "", command = "", interactiveMode = "" } = spec;
  const mustAsk = `exec plugin "${command}" must ask the user (interactiveMode: Always), and there is no terminal`;
  const checks: readonly [isBroken: boolean, problem: string][] = [
    [command === "", "exec has no command"],
    [
      !API_VERSIONS.includes(apiVersion),
      `exec has apiVersion "${apiVersion}"; known are ${API_VERSIONS.join(" and ")}`,
    ],
    [
      interactiveMode === "" && apiVersion === API_VERSIONS[0],
      `exec has no interactiveMode, which ${apiVersion} requires`,
    ],
    [
      !["", ...INTERACTIVE_MODES].includes(interactiveMode),
      `exec has interactiveMode "${interactiveMode}"; known are ${INTERACTIVE_MODES.join(", ")}`,
    ],
    [interactiveMode === "Always" && !isTerminal, mustAsk],
  ];
  return checks.find(([isBroken]) => isBroken)?.[1];
}

/** The value of KUBERNETES_EXEC_INFO. */
export function execInfo(
  { apiVersion = "", provideClusterInfo }: ExecSpec,
  interactive: boolean,
  cluster: ExecCluster,
): string {
  const spec = { interactive, ...(provideClusterInfo === true ? { cluster } : {}) };
  return JSON.stringify({ apiVersion, kind: "ExecCredential", spec });
}

interface RawCredential {
  readonly apiVersion?: unknown;
  readonly kind?: unknown;
  readonly status?: {
    readonly token?: unknown;
    readonly clientCertificateData?: unknown;
    readonly clientKeyData?: unknown;
    readonly expirationTimestamp?: unknown;
  } | null;
}

/**
 * Reads what an exec plugin printed.
 * @throws {Error} where it is no ExecCredential of the version that the kubeconfig names, or holds no credentials.
 */
export function parseExecCredential(output: string, { apiVersion }: ExecSpec): ExecCredential {
  const raw = parseJson(output);
  if (raw?.kind !== "ExecCredential" || raw.apiVersion !== apiVersion) {
    throw new Error(
      `it printed ${quoted(raw?.kind)} of ${quoted(raw?.apiVersion)}, not ExecCredential of ${apiVersion}`,
    );
  }
  return credentialOf(raw.status ?? {});
}

function credentialOf(status: NonNullable<RawCredential["status"]>): ExecCredential {
  const token = textOf(status.token);
  const cert = textOf(status.clientCertificateData);
  const key = textOf(status.clientKeyData);
  if ((cert === undefined) !== (key === undefined)) {
    throw new Error("it printed a client certificate without its key, or a key without its certificate");
  }
  if (token === undefined && cert === undefined) {
    throw new Error("it printed neither a token nor a client certificate");
  }
  const expiresAt = Date.parse(textOf(status.expirationTimestamp) ?? "");
  return { token, cert, key, expiresAt: Number.isNaN(expiresAt) ? undefined : expiresAt };
}

function parseJson(output: string): RawCredential | undefined {
  try {
    const value: unknown = JSON.parse(output);
    return typeof value === "object" && value !== null ? value : undefined;
  } catch {
    // The parser's error quotes the output, which holds credentials.
    throw new Error("it printed no JSON");
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

function quoted(value: unknown): string {
  return typeof value === "string" ? `"${value}"` : "nothing";
}
