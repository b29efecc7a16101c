import tap from "tap";
import { floodWithBodies, floodWithConnections } from "./flood.ts";

await tap.test("300 bodies that are made to use memory end no replica under the shipped limits", (t) =>
  floodWithBodies(t, 300),
);

await tap.test("600 connections and stalled bodies keep no API server from its answer", (t) =>
  floodWithConnections(t, 600),
);
