// What a program writes with types that openapi-typescript makes of our document, and openapi-fetch: push, end, read.
// Usage: node generated.js URL TOKEN JOB

import createClient from "openapi-fetch";
import type { paths } from "./api.js";

const [url, token, job] = process.argv.slice(2) as [string, string, string];
const log = "step 1 loss 2.0\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n";
const headers = { Authorization: `Bearer ${token}` };
const client = createClient<paths>({ baseUrl: url, headers });
const stranger = createClient<paths>({ baseUrl: url, headers: { Authorization: "Bearer dgn_wrong" } });

function push(from: typeof client) {
  return from.POST("/v1/jobs/{job}/logs", {
    params: { path: { job }, query: { source: "rank0.log", rank: 3, offset: 0 } },
    body: log,
    bodySerializer: (text) => text,
    headers: { "Content-Type": "application/octet-stream" },
  });
}

const refused = await push(stranger);
const taken = await push(client);
const ended = await client.POST("/v1/jobs/{job}/end", { params: { path: { job } }, body: { exit_code: 1 } });
const report = await client.GET("/v1/jobs/{job}/report", { params: { path: { job } } });
console.log(
  JSON.stringify({
    refused: refused.error?.error,
    next_offset: taken.data?.next_offset,
    attempt: ended.data?.attempt,
    reason: report.data?.diagnosis?.reason,
  }),
);
