/** What a pool sends to a worker. */
export interface Order<Task> {
  readonly id: number;
  readonly task: Task;
}

/** What a worker sends to its pool: that it has loaded everything, or a result and how much memory it has. */
export type Report<Result> =
  | { readonly ready: true }
  | { readonly id: number; readonly result: Result; readonly bytes: number };

/**
 * Has this process work for the `WorkerPool` that started it: one task after another, until the pool lets go of it.
 * @param work an error that it throws ends the process, and the pool tells of it
 */
export function serve(work: (task: never) => Promise<unknown>): void {
  const orders: Order<never>[] = [];
  let isWorking = false;
  const go = async (): Promise<void> => {
    if (isWorking) return;
    isWorking = true;
    for (let order = orders.shift(); order !== undefined; order = orders.shift()) {
      const result = await work(order.task);
      await send({ id: order.id, result, bytes: process.memoryUsage.rss() });
    }
    isWorking = false;
  };
  process.on("message", (order: Order<never>) => {
    orders.push(order);
    void go();
  });
  // Ctrl-C in a terminal is for all processes of it: the pool decides what becomes of its workers.
  process.on("SIGINT", () => {});
  // Not SIGKILL and no crash: what measures coverage writes its file at the end of the process.
  process.on("disconnect", () => process.exit());
  void send({ ready: true });
}

/** Once this is over, the pool has the report, whatever becomes of this process. */
function send<Result>(report: Report<Result>): Promise<void> {
  return new Promise((resolve) => {
    process.send?.(report, undefined, undefined, () => resolve());
  });
}
