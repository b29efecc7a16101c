import tap from "tap";
import { dueOf } from "../../src/controller/expiry.ts";

const ended = (name: string, resource: string, endedAt: number, expiresAt?: number) => ({
  name,
  resource,
  pastEnd: { endedAt, ...(expiresAt === undefined ? {} : { expiresAt }) },
});
const MIGRATIONS = [
  ended("b", "pods", 2),
  ended("expired", "pods", 9, 10),
  ended("a", "pods", 1),
  ended("later", "pods", 3, 11),
  ended("c", "nodes", 1),
  { name: "runs", resource: "pods" },
];
const names = (limit: number): readonly string[] =>
  dueOf(MIGRATIONS, { limit, now: 10 }).map(({ migration, why }) => `${migration.name}: ${why}`);

await tap.test("dueOf() takes what has expired, and of each resource what ended before the newest ones", async (t) => {
  t.same(names(0), ["expired: expired"], "no limit");
  t.same(names(1), ["expired: expired", "b: beyond the limit", "a: beyond the limit"]);
  t.same(names(2), ["expired: expired", "a: beyond the limit"], "what has expired takes no place");
  t.same(names(3), ["expired: expired"]);
});
