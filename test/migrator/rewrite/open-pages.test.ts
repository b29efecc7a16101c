import tap from "tap";

import type { ListedObject } from "../../../src/kube/listed-object.ts";
import { OpenPage, OpenPages } from "../../../src/migrator/rewrite/open-pages.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const objects = (count: number): ListedObject[] => Array.from({ length: count }, () => ({}) as ListedObject);

/** Pages whose end is told to a list of their continue tokens. */
function openPages(onDone: (page: OpenPage) => Promise<void> = async () => undefined) {
  const abort = new AbortController();
  const told: (string | undefined)[] = [];
  const pages = new OpenPages(async (page) => {
    told.push(page.continueToken);
    await onDone(page);
  }, abort.signal);
  const open = (token: string, items = 1): OpenPage => {
    const page = new OpenPage(objects(items), token);
    pages.add(page, (error) => abort.abort(error));
    return page;
  };
  return { pages, told, open, abort };
}

await tap.test("OpenPages tells of a page once all its objects were begun and are done", async (t) => {
  const { open, told } = openPages();
  const page = open("a", 2);
  page.begun();
  page.ended();
  await turn();
  t.same(told, [], "the second object was not begun");
  page.begun();
  page.ended();
  page.ended();
  await turn();
  t.same(told, ["a"]);
});

await tap.test("OpenPages tells of pages in the order of the list, one after the other", async (t) => {
  const first = Promise.withResolvers<void>();
  const { open, pages, told } = openPages((page) => (page.continueToken === "a" ? first.promise : Promise.resolve()));
  const [a, b, c] = [open("a", 5), open("b", 6), open("c")];
  t.equal(pages.items, 12);
  b.ended();
  c.ended();
  await turn();
  t.same(told, [], "what comes before them is not done");
  a.ended();
  await turn();
  t.same(told, ["a"], "what is kept of the first one has not arrived");
  first.resolve();
  await pages.drained();
  t.same(told, ["a", "b", "c"]);
  t.equal(pages.items, 0);
});

await tap.test("OpenPages has room for four pages", async (t) => {
  const { open, pages } = openPages();
  const first = ["a", "b", "c", "d"].map((token) => open(token))[0];
  let hasRoom = false;
  const room = pages.room().then(() => (hasRoom = true));
  await turn();
  t.notOk(hasRoom);
  first?.ended();
  await room;
  t.ok(hasRoom);
});

await tap.test("OpenPages tells of no page after one could not be kept, and ends every wait", async (t) => {
  const failure = new Error("the Lease is lost");
  const { open, pages, told } = openPages(() => Promise.reject(failure));
  const [a, b] = [open("a"), open("b")];
  const drained = pages.drained();
  a.ended();
  b.ended();
  await t.rejects(drained, failure);
  await t.rejects(
    pages.room().then(() => pages.drained()),
    failure,
  );
  await pages.idle();
  t.same(told, ["a"]);
});

await tap.test("OpenPages ends a wait for an object that is never done when the pass is aborted", async (t) => {
  const { abort, open, pages } = openPages();
  open("a");
  const drained = pages.drained();
  abort.abort(new Error("stop"));
  await t.rejects(drained, { message: "stop" });
});
