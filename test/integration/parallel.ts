import t, { type Test } from "tap";

/** How many tests of a file run at the same time: most of them wait, for a settle time or a webhook. */
const JOBS = 8;
t.jobs = JOBS;

/**
 * Registers a test that runs beside others of its file, each on a kind of its own.
 * @param skip why it cannot run
 */
export function parallel(title: string, test: (t: Test) => Promise<unknown>, skip: string | false = false): void {
  void t.test(title, { buffered: true, skip }, test);
}

/**
 * Registers a test that changes what others see, such as a webhook under our name: it begins when those before it have
 * ended, and those after it begin when it has.
 * @param skip why it cannot run
 */
export function alone(title: string, test: (t: Test) => Promise<unknown>, skip: string | false = false): void {
  void t.test(title, { buffered: false, skip }, test);
}
