import type { ApiserverOptions } from "./apiserver.ts";

export interface ControlPlaneOptions extends ApiserverOptions {
  /** How many apiservers share the etcd. @default 1 */
  readonly apiservers?: number;
  /** What differs for the apiserver at the same index. @default nothing */
  readonly overrides?: readonly ApiserverOptions[];
  /** Further users; what they may do is up to RBAC. @default only "admin" of the group system:masters */
  readonly users?: readonly { readonly name: string; readonly groups?: readonly string[] }[];
  /** Further flags of etcd. @default none */
  readonly etcdArgs?: readonly string[];
  /** Holds data, logs and kubeconfigs; kept by stop() when given. @default a new temporary folder, which goes with stop() */
  readonly dir?: string;
}

export interface ControllerManagerOptions {
  /** As for --controllers. @default the program's own list */
  readonly controllers?: readonly string[];
  /** @default none */
  readonly featureGates?: Readonly<Record<string, boolean>>;
  /** @default none */
  readonly extraArgs?: readonly string[];
}

export interface RequestOptions {
  /** @default "GET" */
  readonly method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Sent as JSON. @default none */
  readonly body?: unknown;
  /** @default "application/json", for PATCH "application/merge-patch+json" */
  readonly contentType?: string;
  /** @default "admin" */
  readonly user?: string;
  /** The index of the apiserver to ask. @default 0 */
  readonly apiserver?: number;
  /** @default 30,000 */
  readonly timeoutMs?: number;
}
