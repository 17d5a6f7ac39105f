// Why a circuit exists: its users, its reservations, and the controller's explanation of its ends.

import { get } from "./api.js";
import { idButton } from "./copy.js";
import { el, mbps } from "./dom.js";
import { ofCircuit } from "./load.js";
import { told } from "./times.js";

const MOST_NAMED = 3;
const is = (end, rack, port) => end.rack === rack && end.port === port;
const leads = (hop, from, to) => is(from, hop.from_rack, hop.from_port) && is(to, hop.to_rack, hop.to_port);
export const uses = (path, circuit) => path.hops.some((hop) =>
  hop.plane === circuit.plane &&
  (leads(hop, circuit.a, circuit.b) || (!circuit.one_way && leads(hop, circuit.b, circuit.a))));

const way = (one) => (one.one_way ? ">" : "=");
export const describe = (circuit) => `${circuit.a.rack} =${circuit.plane}${way(circuit)} ${circuit.b.rack}`;
export const along = (path) => [path.src, ...path.hops.map((hop) => `=${hop.plane}${way(path)} ${hop.to_rack}`)].join(" ");

// A port sends only while it receives light: one-way circuits form rings, and some circuits only close a
// ring.
function lights({ one_way, b }, circuits) {
  const onward = one_way ? circuits.find((other) => is(other.a, b.rack, b.port)) : undefined;
  return onward ? [el("p", {}, `The circuit lights ${b.rack} ${b.port}, which sends on ${describe(onward)}.`)] : [];
}

const list = (many) => el("ul", {}, ...many.map((parts) => el("li", {}, ...[parts].flat())));

// The controller's explanation of two racks, also from before its last start: builders of circuits, demand,
// decisions, and history.
export function said(a, b) {
  const place = el("div", {}, el("p", { className: "quiet" }, "Reading the controller's answer…"));
  get(`/v1/explanations/circuits/${encodeURIComponent(a)}/${encodeURIComponent(b)}`).then(
    ({ lines }) => place.replaceChildren(list(lines.map(told))),
    (error) => place.replaceChildren(el("p", { className: "bad" }, told(error.message))));
  return [el("h3", {}, `The controller's explanation for ${a} and ${b}`), place];
}

const names = (many) => `${many.slice(0, MOST_NAMED).map(({ src, dst }) => `${src} to ${dst}`).join(", ")}${many.length > MOST_NAMED ? ` and ${many.length - MOST_NAMED} more` : ""}`;

// The answer in a sentence: a promise weighs more than traffic, and traffic more than a port to light.
function answer(circuit, paths, promised, lit) {
  if (promised.length) return `The circuit was promised to ${promised.length === 1 ? "the reservation" : `${promised.length} reservations`} of ${names(promised)}.`;
  if (paths.length) return `The circuit carries the traffic of ${names(paths)}.`;
  if (lit.length) return `The circuit closes a ring of one-way circuits, and carries no traffic.`;
  return "No traffic uses the circuit: the circuit is idle, and free for the next plan.";
}

export function explain(circuit, { topology, demand, reservations }) {
  const paths = topology.paths.filter((path) => uses(path, circuit));
  const promised = reservations.filter((one) => (one.path ?? one.booked) && uses(one.path ?? one.booked, circuit));
  const rate = (src, dst) => demand.entries.find((one) => one.src === src && one.dst === dst)?.rate_mbps ?? 0;
  const beside = (path) => topology.paths.filter((one) => one.src === path.src && one.dst === path.dst).length;
  const shared = (path) => (beside(path) > 1 ? `, on ${beside(path)} paths together` : "");
  const carried = (path) => `${mbps(rate(path.src, path.dst))} Mb/s${path.one_way ? "" : ` there, ${mbps(rate(path.dst, path.src))} back`}${shared(path)}`;
  const lit = lights(circuit, topology.circuits);
  const parts = [
    el("p", { className: "answer" }, answer(circuit, paths, promised, lit)),
    el("p", {}, circuit.one_way
      ? `${describe(circuit)}, from port ${circuit.a.port} to ${circuit.b.port}, ${mbps(circuit.rate_mbps)} Mb/s.`
      : `${describe(circuit)}, ports ${circuit.a.port} and ${circuit.b.port}, ${mbps(circuit.rate_mbps)} Mb/s each way.`),
    ...lit,
    el("h3", {}, "The last hour"),
    ofCircuit(circuit),
    el("h3", {}, "Paths over the circuit"),
    paths.length
      ? list(paths.map((path) => `${along(path)}, VLAN ${path.vlan}: ${carried(path)}`))
      : el("p", {}, "None."),
    ...(paths.length ? [el("p", { className: "quiet" }, `Rates of paths are the averages that servers send, over ${demand.window_s} s.`)] : []),
    el("h3", {}, "Reservations with the circuit"),
    promised.length ? list(promised.map((one) => [idButton(one.id), ` ${one.state}: ${one.src} to ${one.dst}, ${mbps(one.bandwidth_mbps)} Mb/s`])) : el("p", {}, "None."),
    ...said(circuit.a.rack, circuit.b.rack),
  ];
  return parts;
}
