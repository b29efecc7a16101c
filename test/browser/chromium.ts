import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import type { Test } from "tap";
import { endWithThisProcess } from "../processes/watchdog.ts";

const PROGRAMS = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/** Nothing but the page: no start page, no updates, no host that can be found. */
const FLAGS = [
  "--headless",
  "--remote-debugging-pipe",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-extensions",
  "--disable-sync",
  "--hide-scrollbars",
  "--force-color-profile=srgb",
  "--host-resolver-rules=MAP * ~NOTFOUND",
];
const START_TIMEOUT_MS = 60_000;

/** The browser of this machine: CHROMIUM, or the first of the usual names on PATH; `undefined` where there is none. */
export function findChromium(): string | undefined {
  const { CHROMIUM: asked } = process.env;
  return (asked === undefined ? PROGRAMS : [asked]).find(
    (program) => spawnSync(program, ["--version"], { stdio: "ignore", timeout: START_TIMEOUT_MS }).status === 0,
  );
}

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

/** What a page of the browser is asked and tells, by the Chrome DevTools Protocol over a pipe: no port is open. */
export class Page {
  readonly #send: (method: string, params: object) => Promise<Record<string, unknown>>;
  /** Everything that the page or the browser complained of: console, exceptions, blocked requests. */
  readonly complaints: string[] = [];
  readonly #loaded: (() => void)[] = [];

  constructor(send: (method: string, params: object) => Promise<Record<string, unknown>>) {
    this.#send = send;
  }

  /** Sends one command of the protocol. */
  send<Result>(method: string, params: object = {}): Promise<Result> {
    return this.#send(method, params) as Promise<Result>;
  }

  /** Told of every event of this page. */
  onEvent({ method, params = {} }: Message): void {
    const { args, entry, exceptionDetails } = params;
    if (method === "Page.loadEventFired") {
      for (const done of this.#loaded.splice(0)) done();
    } else if (method === "Runtime.consoleAPICalled" || method === "Runtime.exceptionThrown") {
      this.complaints.push(JSON.stringify(args ?? exceptionDetails));
    } else if (method === "Log.entryAdded" || method === "Network.requestWillBeSent") {
      const { url = "" } = (params["request"] ?? {}) as { url?: string };
      if (entry !== undefined || !url.startsWith("file:")) this.complaints.push(JSON.stringify(entry ?? url));
    }
  }

  /** Opens an address and waits until it is loaded. */
  async open(url: string): Promise<void> {
    const loaded = new Promise<void>((done) => this.#loaded.push(done));
    await this.send("Page.navigate", { url });
    await loaded;
  }

  /** The value of an expression, as JSON. It runs in the browser beside the page, also where the page may run no script. */
  async value<Value>(expression: string): Promise<Value> {
    const { exceptionDetails, result } = await this.send<{
      readonly exceptionDetails?: object;
      readonly result: { readonly value: Value };
    }>("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
    return result.value;
  }

  /** Presses a key once. */
  async press(key: "Tab" | "Enter", modifiers = 0): Promise<void> {
    const [code, text] = key === "Tab" ? [9, undefined] : [13, "\r"];
    const event = { key, code: key, windowsVirtualKeyCode: code, modifiers };
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event, ...(text === undefined ? {} : { text }) });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  /** The color scheme that the user prefers, and what the page is shown on. */
  emulate(scheme: "light" | "dark", media: "screen" | "print" = "screen"): Promise<unknown> {
    return this.send("Emulation.setEmulatedMedia", {
      media,
      features: [{ name: "prefers-color-scheme", value: scheme }],
    });
  }
}

/** Starts the browser with an empty profile, and one page. Both end with the test. */
export async function startChromium(t: Test, program: string): Promise<Page> {
  const profile = mkdtempSync(join(tmpdir(), "ksvm-browser-"));
  // As root there is no sandbox; the only page is one that this test wrote.
  const asRoot = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  const child = spawn(program, [...FLAGS, ...asRoot, `--user-data-dir=${profile}`], {
    detached: true,
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  endWithThisProcess(child, { withGroup: true });
  t.teardown(async () => {
    await ended(child);
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  });
  return await firstPage(child);
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = new Promise((done) => child.once("exit", done));
  if (child.pid !== undefined && child.exitCode === null && child.signalCode === null) {
    process.kill(-child.pid, "SIGKILL");
    await exit;
  }
}

async function firstPage(child: ChildProcess): Promise<Page> {
  const [, , , input, output] = child.stdio as unknown as [null, null, null, Writable, Readable];
  const waiting = new Map<number, { done: (result: Record<string, unknown>) => void; fail: (error: Error) => void }>();
  let [last, sessionId, rest] = [0, undefined as string | undefined, ""];
  const send = (method: string, params: object): Promise<Record<string, unknown>> =>
    new Promise((done, fail) => {
      waiting.set(++last, { done, fail });
      input.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
    });
  const page = new Page(send);
  output.setEncoding("utf8").on("data", (text: string) => {
    const parts = (rest + text).split("\0");
    rest = parts.pop() ?? "";
    for (const message of parts.map((part) => JSON.parse(part) as Message)) {
      const call = waiting.get(message.id ?? 0);
      if (call === undefined) page.onEvent(message);
      else if (message.error === undefined) call.done(message.result ?? {});
      else call.fail(new Error(message.error.message));
    }
  });
  const gone = new Promise<never>((_, fail) => {
    child.once("error", fail);
    child.once("exit", (code) => fail(new Error(`the browser ended with code ${code}`)));
    setTimeout(() => fail(new Error("the browser does not answer")), START_TIMEOUT_MS).unref();
  });
  gone.catch(() => undefined);
  const { targetId } = (await Promise.race([send("Target.createTarget", { url: "about:blank" }), gone])) as {
    targetId: string;
  };
  ({ sessionId } = (await send("Target.attachToTarget", { targetId, flatten: true })) as { sessionId: string });
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`, {});
  return page;
}
