import tap from "tap";
import { testSeeds } from "./test-seeds.ts";

tap.setTimeout(600_000);

await testSeeds(251, 250);
