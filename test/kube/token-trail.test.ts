import tap from "tap";
import { ApiClient } from "../../src/kube/client.ts";
import { listProjected, projectedPages } from "../../src/kube/list-projected.ts";
import { CRDS } from "../../src/kube/resources.ts";
import { TokenTrail } from "../../src/kube/token-trail.ts";
import { sendJson, startServer } from "./local-server.ts";

/** What a list answers whose first `lead` tokens lead to a circle of `circle` others. */
function tokenAt(page: number, { lead, circle }: { readonly lead: number; readonly circle: number }): string {
  return String(page < lead ? page : lead + ((page - lead) % circle));
}

/** What is wrong with how a list with such a circle is given up; `undefined` where nothing is. */
function wrongWith(shape: { readonly lead: number; readonly circle: number }): string | undefined {
  const trail = new TokenTrail("/apis/example.com/v1/widgets");
  const atMost = 3 * (shape.lead + shape.circle);
  let page = 0;
  try {
    for (; page <= atMost; page++) trail.next(tokenAt(page, shape));
  } catch (error) {
    const isNew = page < shape.lead + shape.circle;
    return isNew || !String(error).includes("/widgets to its end") ? `${page}: ${String(error)}` : undefined;
  }
  return `not found: ${shape.lead} pages before a circle of ${shape.circle}`;
}

await tap.test("TokenTrail finds a circle of any length soon, wherever it begins, and nothing else", async (t) => {
  const lengths = Array.from({ length: 40 }, (_, n) => n + 1);
  const shapes = lengths.flatMap((circle) => [0, ...lengths].map((lead) => ({ lead, circle })));
  t.same(shapes.flatMap((shape) => wrongWith(shape) ?? []).slice(0, 3), []);
  const trail = new TokenTrail("/api/v1/pods");
  const goesOn = Array.from({ length: 10_000 }, (_, page) => trail.next(`token ${page}`) === `token ${page}`);
  t.ok(goesOn.every(Boolean), "a list that goes on is read to its end");
  t.equal(trail.next(""), undefined, "the last page");
  t.equal(trail.next(undefined), undefined, "the last page");
});

await tap.test("TokenTrail takes no list that begins again for a circle", async (t) => {
  const trail = new TokenTrail("/api/v1/pods");
  for (let round = 0; round < 5; round++) {
    for (const token of ["a", "b", "c"]) trail.next(token);
    trail.startOver();
  }
  trail.next("a");
  t.throws(() => trail.next("a"));
});

// No API server does this; a proxy that caches, or an aggregated API server with a fault, would.
const READERS: Readonly<Record<string, (client: ApiClient) => Promise<unknown>>> = {
  projectedPages: async (client: ApiClient) => {
    for await (const _ of projectedPages(client.transport, CRDS, { limit: 1, projection: "all" }));
  },
  listProjected: (client: ApiClient) =>
    listProjected(client.transport, CRDS, {
      limit: 1,
      projection: "all",
      signal: new AbortController().signal,
    }),
};

for (const [name, read] of Object.entries(READERS)) {
  await tap.test(`${name}() gives up a list whose continue tokens come in turn`, async (t) => {
    let lists = 0;
    const server = await startServer(t, ({ query }, response) => {
      // A negative control for the test itself: a reader that is deceived comes to an end here.
      const next = ++lists > 100 ? "" : query.get("continue") === "A" ? "B" : "A";
      sendJson(response, 200, { kind: "List", metadata: { resourceVersion: "1", continue: next }, items: [] });
    });
    const reading = read(new ApiClient(server.transport()));
    await t.rejects(reading, { code: "ApiRequestFailed", message: /customresourcedefinitions to its end/ });
    t.ok(lists < 10, `${lists} lists`);
  });
}
