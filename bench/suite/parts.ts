import type { Part } from "./arena.ts";
import { COST } from "./cost-part.ts";
import { DISTANCE } from "./distance-part.ts";
import { POLITENESS } from "./politeness-part.ts";
import { RERUN } from "./rerun-part.ts";
import { ROUGH } from "./rough-part.ts";
import { MILLION, SIZE } from "./size-part.ts";
import { THROUGHPUT } from "./throughput-part.ts";

/** All of them, in the order in which they are measured. */
export const PARTS: readonly Part[] = [THROUGHPUT, DISTANCE, POLITENESS, RERUN, SIZE, COST, ROUGH, MILLION];
