import pino from "pino";
import tap from "tap";
import { ApiError } from "../../src/kube/errors.ts";
import { FollowPace } from "../../src/retry/follow-pace.ts";
import { FakeClock } from "../fake-clock.ts";

function forbidden(verb: string): ApiError {
  const message = `widgets.example.com is forbidden: User "u" cannot ${verb} resource "widgets" in API group "example.com"`;
  return new ApiError("GET /w", 403, { answer: { kind: "Status", message } });
}

await tap.test("FollowPace says what it costs not to list, which is more than not to watch", async (t) => {
  const lines: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
  const options = { clock: new FakeClock(), logger, what: "widgets", cost: "they come late" };
  const pace = new FollowPace({ ...options, costOfList: "none is seen" });
  pace.failed(forbidden("watch"));
  pace.failed(forbidden("list"));
  pace.failed(forbidden("list"));
  t.equal(lines.length, 2, "each is said once");
  t.match(lines[0], /they come late/);
  t.match(lines[1], /none is seen/);
  new FollowPace(options).failed(forbidden("list"));
  t.match(lines[2], /they come late/, "where it makes no difference");
});
