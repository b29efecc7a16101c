/** What serves: commands load it when they begin to, as the others do not need Fastify, prom-client and node-forge. */
export { Metrics } from "../observability/metrics.ts";
export { observeRequests } from "./observe-requests.ts";
export { serve } from "./serve.ts";
