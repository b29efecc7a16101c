import { testScenario } from "../integration/shown-scenario.ts";
import { ensureHelm } from "./helm.ts";

const programs = { helm: await ensureHelm() };

await testScenario("A Helm upgrade that is stuck", { programs });
await testScenario("The hook of an operator", { programs, jobs: { namespace: "default", count: 1 } });
