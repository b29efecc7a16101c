import tap from "tap";
import { testSeeds } from "./test-seeds.ts";

tap.setTimeout(1_800_000);

await testSeeds(251, 250);
