import tap from "tap";
import { floodWithBodies, floodWithConnections } from "../webhook/flood.ts";

await tap.test(
  "100,000 bodies that are made to use memory end no replica under the shipped limits",
  { timeout: 900_000 },
  (t) => floodWithBodies(t, 100_000),
);

await tap.test("5,000 connections and stalled bodies keep no API server from its answer", { timeout: 900_000 }, (t) =>
  floodWithConnections(t, 5_000),
);
