import type { KubeCluster, KubeUser } from "./cluster-config.ts";
import { type ExecSpec, problemOf } from "./exec-credential.ts";
import { entryOf, listOf, type RawEntry, textOf } from "./kubeconfig-merge.ts";
import { parseProxy } from "./proxy.ts";
import { serverUrlOf } from "./server-url.ts";

/**
 * Reads a cluster of a kubeconfig.
 * @throws {Error} where client-go would not use it either.
 */
export function readCluster(name: string, entry: RawEntry): KubeCluster {
  const skipTLSVerify = textOf(entry["insecure-skip-tls-verify"]) === "true";
  const cluster: KubeCluster = {
    name,
    // Without a server kubectl takes localhost:8080, where no API server listens any more.
    server: serverUrlOf(textOf(entry["server"]) ?? ""),
    skipTLSVerify,
    ...textsOf(entry, TEXTS_OF_CLUSTER),
    execConfig: execConfigOf(entry["extensions"]),
  };
  const { caData, caFile, proxyUrl } = cluster;
  if (hasOne(caData) && hasOne(caFile)) {
    throw new Error(`cluster "${name}" has both certificate-authority and certificate-authority-data`);
  }
  if (hasOne(caData, caFile) && skipTLSVerify) {
    throw new Error(`cluster "${name}" has a certificate-authority and insecure-skip-tls-verify`);
  }
  if (proxyUrl !== undefined) {
    parseProxy(proxyUrl);
  }
  return cluster;
}

function execConfigOf(extensions: unknown): unknown {
  const named = (Array.isArray(extensions) ? extensions : []).map((item: unknown) => entryOf(item) ?? {});
  return jsonOf(named.find(({ name }) => name === EXEC_EXTENSION)?.["extension"]);
}

function jsonOf(value: unknown): unknown {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value, withoutBigint));
}

/** Whole numbers are read as bigints, which JSON does not have. */
function withoutBigint(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? Number(value) : value;
}

const EXEC_EXTENSION = "client.authentication.k8s.io/exec";

const TEXTS_OF_CLUSTER = {
  caData: "certificate-authority-data",
  caFile: "certificate-authority",
  tlsServerName: "tls-server-name",
  proxyUrl: "proxy-url",
} as const;

/** The fields that are there, under the names that they have here. */
function textsOf(entry: RawEntry, names: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const texts = Object.entries(names).flatMap(([field, key]) => {
    const value = textOf(entry[key]);
    return value === undefined ? [] : [[field, value]];
  });
  return Object.fromEntries(texts) as Record<string, string>;
}

const TEXTS_OF_USER = {
  certData: "client-certificate-data",
  certFile: "client-certificate",
  keyData: "client-key-data",
  keyFile: "client-key",
  token: "token",
  tokenFile: "tokenFile",
  username: "username",
  password: "password",
  impersonateUser: "as",
  impersonateUid: "as-uid",
} as const;

/**
 * Reads a user of a kubeconfig.
 * @throws {Error} where client-go would not use it either, or where this program cannot.
 */
export function readUser(name: string, entry: RawEntry): KubeUser {
  const extra = Object.entries(entryOf(entry["as-user-extra"]) ?? {});
  const exec = entryOf(entry["exec"]);
  const user: KubeUser = {
    name,
    ...textsOf(entry, TEXTS_OF_USER),
    impersonateGroups: listOf(entry["as-groups"]),
    impersonateExtra: Object.fromEntries(extra.map(([key, values]) => [key, listOf(values)])),
    ...(exec === undefined ? {} : { exec: readExec(exec) }),
  };
  const problem = problemOfUser(user, entryOf(entry["auth-provider"]));
  if (problem !== undefined) {
    throw new Error(`user "${name}": ${problem}`);
  }
  return user;
}

function readExec(exec: RawEntry): ExecSpec {
  const env = (Array.isArray(exec["env"]) ? exec["env"] : []).map((item: unknown) => entryOf(item) ?? {});
  return {
    apiVersion: textOf(exec["apiVersion"]) ?? "",
    command: textOf(exec["command"]) ?? "",
    args: listOf(exec["args"]),
    env: env.map(({ name, value }) => ({ name: textOf(name) ?? "", value: textOf(value) ?? "" })),
    installHint: textOf(exec["installHint"]) ?? "",
    provideClusterInfo: textOf(exec["provideClusterInfo"]) === "true",
    interactiveMode: textOf(exec["interactiveMode"]) ?? "",
  };
}

function problemOfUser(user: KubeUser, authProvider: RawEntry | undefined): string | undefined {
  if (authProvider !== undefined) {
    return problemOfAuthProvider(textOf(authProvider["name"]) ?? "");
  }
  const { certData, certFile, exec, impersonateUser, keyData, keyFile, token, username } = user;
  const checks: readonly [isBroken: boolean, problem: string][] = [
    [token !== undefined && username !== undefined, "it has both a token and a username, and only one is allowed"],
    [impersonatesPartly(user) && impersonateUser === undefined, "as-uid, as-groups and as-user-extra need as"],
    [
      hasOne(certData, certFile) !== hasOne(keyData, keyFile),
      "a client certificate needs its key, and a key its certificate",
    ],
  ];
  const problem = checks.find(([isBroken]) => isBroken)?.[1];
  // Whether there is a terminal is known when the plugin runs.
  return problem ?? (exec === undefined ? undefined : problemOf(exec as ExecSpec, true));
}

function impersonatesPartly({ impersonateExtra = {}, impersonateGroups = [], impersonateUid }: KubeUser): boolean {
  return impersonateUid !== undefined || impersonateGroups.length > 0 || Object.keys(impersonateExtra).length > 0;
}

function hasOne(...values: readonly (string | undefined)[]): boolean {
  return values.some((value) => value !== undefined);
}

/**
 * No auth-provider is supported. kubectl has `oidc` left, and writes each new refresh token to the kubeconfig: two programs
 * that do so for one file log each other out.
 */
function problemOfAuthProvider(name: string): string {
  switch (name) {
    case "oidc":
      return (
        'auth-provider "oidc" is not supported, as each renewal would have to rewrite the kubeconfig that kubectl ' +
        "rewrites as well; use an exec plugin, such as kubelogin (kubectl oidc-login)"
      );
    case "azure":
    case "gcp":
      return `auth-provider "${name}" was removed from kubectl in 1.26; use its exec plugin`;
    default:
      return `auth-provider "${name}" is not known; use an exec plugin`;
  }
}
