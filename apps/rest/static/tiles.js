// The first row: present traffic and promises of the network, and their course in the last hour.

import { get } from "./api.js";
import { by, count, el, mbps, say, whole } from "./dom.js";
import { HOUR_S, bars, sparkline } from "./spark.js";
import { OVER } from "./state.js";
import { ago } from "./times.js";

const LOOK_AGAIN_MS = 10_000; // the controller's time between two samples
const DUE = new Set(["activating", "active", "failed", "preempted"]);
let hour = null;
let readAt = -Infinity;

// Reads the totals of the last hour when a new sample may exist. If that fails, the next reading of the other
// documents reports the failure.
async function readHour(seen) {
  if (performance.now() - readAt < LOOK_AGAIN_MS) return;
  readAt = performance.now();
  hour = await get("/v1/load?limit=1").catch(() => hour);
  draw(seen);
}

function tile(name, value, note, drawn) {
  return el("div", { className: "tile" }, el("dt", {}, name), el("dd", { className: "value" }, value), el("dd", { className: "note" }, note), el("dd", { className: "drawn" }, ...drawn));
}

const inUnit = (figure, unit) => el("span", {}, `${figure} `, el("span", { className: "unit" }, unit));

function drawn(samples, top) {
  if (!hour?.unix_s.length) return [el("span", { className: "quiet" }, hour === null ? "" : hour.interval_s === null ? "not recorded" : "no sample yet")];
  return [sparkline(hour.unix_s, samples(hour.totals), top)];
}

const share = (part, all) => (part === null || !all ? null : part / all);

// Rates now: of all pairs, and of the pairs with a path of circuits.
function rates({ demand, topology }) {
  const served = new Set(topology.paths.flatMap((path) => [`${path.src} ${path.dst}`, ...(path.one_way ? [] : [`${path.dst} ${path.src}`])]));
  let [all, withCircuits] = [0, 0];
  for (const entry of demand.entries) {
    all += entry.rate_mbps;
    if (served.has(`${entry.src} ${entry.dst}`)) withCircuits += entry.rate_mbps;
  }
  return { all, withCircuits };
}

function portsLit(circuits) {
  return new Set(circuits.flatMap(({ a, b }) => [`${a.rack} ${a.port}`, `${b.rack} ${b.port}`])).size;
}

const tookMs = (change) => Math.max(0, ...change.timeline.map((step) => step.finished_ms));

function lastChange(reconfigurations) {
  const [last] = reconfigurations;
  if (last === undefined) return tile("Last change", "–", "none since the start", []);
  const now = Date.now() / 1000;
  const recent = reconfigurations.filter((change) => OVER.has(change.state) && now - change.created_unix_s < HOUR_S);
  const value = OVER.has(last.state) ? inUnit(tookMs(last).toFixed(1), "ms") : `${last.state}…`;
  return tile("Last change", value, `${ago(last.created_unix_s)}, ${last.state}`, [bars(now, recent.map((change) => [change.created_unix_s, tookMs(change)]))]);
}

function reservationsKept({ reservations, ended }) {
  const now = Date.now() / 1000;
  const due = [...reservations, ...ended].filter((one) => DUE.has(one.state) && one.start_unix_s <= now);
  const kept = due.filter((one) => one.state === "active").length;
  const lost = due.filter((one) => one.state === "failed" || one.state === "preempted").length;
  return tile("Reservations kept", due.length ? `${kept} of ${due.length}` : "–", lost ? `✗ ${lost} not kept` : due.length ? "all stages due" : "none is due", drawn((totals) => totals.reservations, 1));
}

export function render(seen) {
  draw(seen);
  readHour(seen);
}

function draw(seen) {
  const { topology } = seen;
  const { all, withCircuits } = rates(seen);
  const measured = seen.demand.source !== "none";
  say(by("tiles"),
    tile("Carried", measured ? inUnit(mbps(all), "Mb/s") : "–", measured ? "by both networks" : "not measured yet", drawn((totals) => totals.carried_mbps)),
    tile("On circuits", measured && all > 0 ? inUnit(Math.round((100 * withCircuits) / all), "%") : "–", "of pairs with circuits", drawn((totals) => totals.with_circuits_mbps.map((rate, k) => share(rate, totals.carried_mbps[k])), 1)),
    tile("Circuits in use", whole(topology.circuits.length), `${whole(portsLit(topology.circuits))} of ${count(topology.ports, "port")}`, drawn((totals) => totals.circuits, 1)),
    reservationsKept(seen),
    lastChange(seen.reconfigurations));
}
