import t, { type Test } from "tap";
import { storedVersionsOf } from "../../src/api/crd.ts";
import { unlessAtLeast } from "../control-plane/features.ts";
import { Cluster } from "./cluster.ts";
import { withPodsRunning } from "./job-runner.ts";
import { followScenario, type FollowOptions } from "./transcript.ts";

const CRONTABS = { group: "stable.example.com", plural: "crontabs", name: "crontabs.stable.example.com" };
/** Earlier releases refuse a CRD in other words. */
const skip = unlessAtLeast(36, "the words of the API server in docs/scenarios.md");

/** What a scenario takes. */
export interface ScenarioOptions extends FollowOptions {
  /** How many Jobs it runs, in which namespace. @default none */
  readonly jobs?: { readonly namespace: string; readonly count: number };
}

/** Follows a section of docs/scenarios.md on a cluster of its own, and looks into etcd at its end. */
export async function testScenario(
  heading: string,
  { jobs = { namespace: "default", count: 0 }, ...options }: ScenarioOptions = {},
): Promise<void> {
  await t.test(`docs/scenarios.md: ${heading}: each command prints what is shown`, { skip }, async (t: Test) => {
    const cluster = await Cluster.start(t);
    const { ends } = await withPodsRunning(cluster, jobs.namespace, () => followScenario(t, cluster, heading, options));
    t.same(
      ends.map(({ code }) => code),
      Array.from({ length: jobs.count }, () => 0),
    );
    const { group, plural } = CRONTABS;
    t.same(await cluster.controlPlane.stored.countByVersion(group, plural), { [`${group}/v1`]: 3 });
    t.same(storedVersionsOf(await cluster.crd(CRONTABS)), ["v1"]);
  });
}
