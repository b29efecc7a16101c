import { matchesGlob } from "node:path";
import { unlessAtLeast } from "./control-plane/features.ts";

/** Files of tests whose cluster an older Kubernetes cannot make. Single tests say so by their `skip`. */
const NEEDS = [
  { files: "test/simulation/fidelity/*.test.ts", minor: 37, what: "the model of the simulation is of that version" },
  {
    files: "test/integration/{in-tree,prune-policy}.test.ts",
    minor: 37,
    what: "the in-tree controller as it is now",
  },
  {
    files: "test/long/upgrade.test.ts",
    minor: 37,
    what: "it emulates 1.34 and 1.37",
  },
  {
    files: "test/long/shutdown-delay.test.ts",
    minor: 35,
    what: "an API server that ends deletes its identity Lease",
  },
  {
    files: "test/{integration,long}/reencrypt*.test.ts",
    minor: 34,
    what: "API servers show which encryption configuration they use",
  },
] as const;

/** Why a file of tests cannot run on the control plane that was asked for; `undefined` where it can. */
export function needOf(file: string): string | undefined {
  const need = NEEDS.find(({ files }) => matchesGlob(file, files));
  const reason = need !== undefined && unlessAtLeast(need.minor, need.what);
  return reason === false ? undefined : reason;
}
