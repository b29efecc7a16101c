import { CLUSTER_API } from "./cluster-api.ts";
import { IN_TREE } from "./in-tree.ts";
import { KNATIVE } from "./knative.ts";
import type { PeerCases } from "./peer-case.ts";

/** Every migrator whose cases are run, in the order of docs/peer-cases.md. */
export const ALL_PEERS: readonly PeerCases[] = [CLUSTER_API, KNATIVE, IN_TREE];

/** Where the cases are shown. */
export const PEER_PAGE = new URL("../../docs/peer-cases.md", import.meta.url);
