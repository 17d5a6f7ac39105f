// Demand of rack pairs: the heat map, and the hottest pairs without a circuit.

import { LEAST_MBPS, by, count, el, keepFocus, mbps, row, rows } from "./dom.js";
import { tell } from "./drawer.js";
import * as heat from "./heat.js";
import { ofPair } from "./load.js";
import { seen } from "./state.js";
import { said } from "./why.js";

const MOST_LISTED = 10;

function summary() {
  const { demand } = seen;
  if (demand.source === "none") return "No demand has been measured yet.";
  const total = demand.entries.reduce((sum, entry) => sum + entry.rate_mbps, 0);
  const late = demand.stale.length ? `; counters are late from ${count(demand.stale.length, "server")}` : "";
  return `${mbps(total)} Mb/s measured, on average over ${demand.window_s} s${late}.`;
}

const tellOfPair = (src, dst) => tell(`${src} to ${dst}, the last hour`, ofPair(src, dst, seen.demand.window_s), ...said(src, dst));

function pairRow(entry) {
  const button = el("button", { type: "button" }, "hour");
  button.dataset.key = `${entry.src} ${entry.dst}`;
  button.setAttribute("aria-label", `The last hour of ${entry.src} to ${entry.dst}`);
  button.addEventListener("click", () => tellOfPair(entry.src, entry.dst));
  return row(`${entry.src} to ${entry.dst}`, mbps(entry.rate_mbps), mbps(entry.estimated_mbps), button);
}

// The largest demands without a path of circuits, in either direction.
function hottest() {
  const { topology, demand } = seen;
  const served = new Set(topology.paths.flatMap((path) => [`${path.src} ${path.dst}`, ...(path.one_way ? [] : [`${path.dst} ${path.src}`])]));
  const found = []; // a large fabric has 100,000 entries: only these few are sorted
  for (const entry of demand.entries) {
    const least = found.length < MOST_LISTED ? LEAST_MBPS : found.at(-1).rate_mbps;
    if (entry.rate_mbps <= least || served.has(`${entry.src} ${entry.dst}`)) continue;
    found.push(entry);
    found.sort((a, b) => b.rate_mbps - a.rate_mbps).splice(MOST_LISTED);
  }
  return found;
}

export function render() {
  by("demand-summary").textContent = summary();
  keepFocus(by("electrical"), () => rows(by("electrical"), hottest().map(pairRow), "None."));
  heat.update(by("heat"), seen.topology, seen.demand);
  heat.renderLegend(by("heat-legend"));
}

export const redraw = () => heat.draw(by("heat"));
export const listen = () => heat.listen(by("heat"), tellOfPair);
