// Racks, planes and circuits: the ring with its legend, and the table of circuits.

import * as changes from "./changes.js";
import { by, count, el, keepFocus, mbps, options, row, rows, say, svg, whole } from "./dom.js";
import { tell } from "./drawer.js";
import * as ring from "./ring.js";
import { isMoving, seen } from "./state.js";
import { describe, explain } from "./why.js";

const MOST_CIRCUITS = 100;
const FEW_RACKS = 64;
const MOST_LISTED = 10;
const IDLE = 0.01; // of a circuit's rate

const percent = (share) => `${Math.round(100 * share)}%`;
const why = (circuit) => tell("Why is this circuit here?", ...explain(circuit, seen));
const listed = (names) => names.slice(0, MOST_LISTED).join(", ") + (names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : "");

// Planes whose mirrors stay, since no controller can command them. Devices may be 10,000.
const deadPlanes = () => new Set(seen.devices.filter((device) => device.kind === "optical-switch" && !device.connected).map((device) => device.name));

// Defects of planes, by name; planes without a defect are left out.
function troubles() {
  const found = new Map();
  const add = (name, words) => found.set(name, [...(found.get(name) ?? []), words]);
  for (const device of seen.devices.filter(({ kind }) => kind === "optical-switch")) {
    if (!device.connected) add(device.name, "can't be commanded");
    if (device.alarms.length) add(device.name, count(device.alarms.length, "alarm"));
  }
  for (const { name } of seen.topology.planes) {
    const out = seen.quarantine.filter((port) => port.plane === name).length;
    if (out) add(name, `${count(out, "port")} out`);
  }
  return found;
}

function busiest() {
  const sums = new Map();
  for (const circuit of seen.topology.circuits) sums.set(circuit.plane, (sums.get(circuit.plane) ?? 0) + ring.load(circuit));
  return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

const stroke = (colour, width, dash) => svg("svg", { viewBox: "0 0 36 10", "aria-hidden": "true" }, svg("line", { x1: 0, y1: 5, x2: 36, y2: 5, stroke: colour, "stroke-width": width, "stroke-dasharray": dash }));

function planeLegend(name, index, alone, wrong) {
  const { colour, dash } = ring.style(index);
  const many = seen.topology.circuits.filter((circuit) => circuit.plane === name).length;
  return el("li", {}, stroke(colour, 3, (!alone && dash.join(" ")) || "none"), `${name}: ${many}`, ...(wrong ? [el("span", { className: "bad" }, ` ✗ ${wrong.join(", ")}`)] : []));
}

const loadLegend = (many) => [0, 0.5, 1].map((share) => el("li", {}, stroke("currentColor", ring.widthOf(share, many), "none"), `${100 * share} % load`));

function circuitRow(circuit, isDead) {
  const share = ring.load(circuit);
  const meter = el("meter", { max: 1, value: share, high: 0.9, optimum: 0 });
  meter.setAttribute("aria-label", "load");
  const button = el("button", { type: "button" }, "why?");
  button.dataset.key = `${circuit.a.rack} ${circuit.a.port}`;
  button.setAttribute("aria-label", `Why is ${describe(circuit)} here?`);
  button.addEventListener("click", () => why(circuit));
  return row(`${circuit.a.rack} ${circuit.one_way ? "→" : "–"} ${circuit.b.rack}`, isDead ? el("span", { className: "bad" }, `✗ ${circuit.plane}`) : circuit.plane, el("span", {}, meter, ` ${percent(share)}`), button);
}

// The chosen rack, and the chosen plane; a rack is looked for on all planes.
function choice(failing) {
  const { topology } = seen;
  const names = topology.planes.map((plane) => plane.name).sort((a, b) => failing.has(b) - failing.has(a)); // failing planes first
  const first = by("plane").options.length === 0;
  options(by("plane"), [["", "all"], ...names.map((name) => [name, failing.has(name) ? `✗ ${name}` : name])]);
  if (first && topology.racks.length > FEW_RACKS) by("plane").value = failing.size ? names[0] : busiest();
  if (by("racks").children.length !== topology.racks.length) {
    by("racks").replaceChildren(...topology.racks.map((value) => el("option", { value })));
  }
  const rack = by("rack").value.trim();
  const found = topology.racks.includes(rack);
  say(by("no-rack"), rack && !found ? `There is no rack ${rack}.` : found && by("plane").value ? `${rack} on all planes` : "");
  return { names, rack: found ? rack : null, plane: found ? "" : by("plane").value };
}

function renderTable(shown, failing) {
  const dead = deadPlanes();
  const busy = [...shown].sort((a, b) => failing.has(b.plane) - failing.has(a.plane) || ring.load(b) - ring.load(a));
  keepFocus(by("circuits"), () => rows(by("circuits"), busy.slice(0, MOST_CIRCUITS).map((circuit) => circuitRow(circuit, dead.has(circuit.plane))), "No circuits."));
  const more = busy.length - MOST_CIRCUITS;
  by("circuits-more").textContent = more > 0 ? `and ${whole(more)} with less load: choose a plane or a rack` : "";
  const idle = shown.filter((circuit) => ring.load(circuit) < IDLE).map(describe);
  by("idle").textContent = idle.length ? `${count(idle.length, "circuit")} with less than 1% load: ${listed(idle)}` : "";
}

// Draws the last reading, also for a new choice, size or colour scheme.
export function render() {
  const { topology } = seen;
  if (topology === undefined) return;
  const failing = troubles();
  const { names, rack, plane } = choice(failing);
  const isShown = (circuit) => (plane === "" || circuit.plane === plane) && (rack === null || circuit.a.rack === rack || circuit.b.rack === rack);
  const shown = topology.circuits.filter(isShown);
  const { coming, going } = changes.change();
  const change = { coming, going: going.filter(isShown) };
  ring.draw(by("ring"), topology, shown, rack, change, `${plane} ${rack}`);
  const known = topology.planes.map(({ name }) => name);
  say(by("legend"), ...(plane === "" ? names : [plane]).map((name) => planeLegend(name, known.indexOf(name), plane !== "", failing.get(name))));
  say(by("load-legend"), ...loadLegend(shown.length));
  const came = shown.filter((circuit) => coming.has(ring.keyOf(circuit))).length;
  const marks = [...(came ? [`+ ${count(came, "circuit")} coming up`] : []), ...(change.going.length ? [`× ${count(change.going.length, "circuit")} going down`] : [])];
  say(by("ring-change"), marks.join(" · "));
  renderTable(shown, failing);
}

// A new reading of the topology.
export function update() {
  changes.follow(seen.topology, isMoving());
  render();
}

const MARKS = { coming: ", coming up", going: ", going down", "": "" };

export function listen() {
  by("plane").addEventListener("change", render);
  by("rack").addEventListener("input", render);
  ring.listen(by("ring"), (line) => {
    const words = line && `${describe(line.circuit)}: ${percent(ring.load(line.circuit))} of ${mbps(line.circuit.rate_mbps)} Mb/s${MARKS[line.mark]}`;
    say(by("ring-circuit"), words ?? by("ring").dataset.hint);
  }, why);
  say(by("ring-circuit"), by("ring").dataset.hint);
}
