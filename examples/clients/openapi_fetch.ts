// Reserve with openapi-fetch and the types of openapi-typescript: URL, start in Unix seconds.
import createClient from "openapi-fetch";
import type { paths } from "./schema";

const [url, start] = process.argv.slice(2);

async function main(): Promise<void> {
  const client = createClient<paths>({ baseUrl: url });
  const made = await client.POST("/v1/reservations", {
    body: { src: "r1", dst: "r2", bandwidth_mbps: 1, start_unix_s: Number(start), duration_s: 60 },
  });
  if (made.data === undefined) throw new Error(made.error.detail);
  const read = await client.GET("/v1/reservations/{reservation_id}", {
    params: { path: { reservation_id: made.data.id } },
  });
  if (read.data === undefined) throw new Error(JSON.stringify(read.error));
  console.log(made.data.state, read.data.start_unix_s.toFixed(6));
}

void main();
