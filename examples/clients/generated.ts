// Reserve with the TypeScript client of openapi-generator: URL, start in Unix seconds.
import { Configuration, ReservationsApi } from "./client";

const [url, start] = process.argv.slice(2);

async function main(): Promise<void> {
  const api = new ReservationsApi(new Configuration({ basePath: url }));
  const made = await api.createReservation({
    reservationBody: { src: "r1", dst: "r2", bandwidthMbps: 1, startUnixS: Number(start), durationS: 60 },
  });
  const read = await api.getReservation({ reservationId: made.id });
  console.log(made.state, read.startUnixS.toFixed(6));
}

void main();
