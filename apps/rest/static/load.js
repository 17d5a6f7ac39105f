// The last hour of a circuit or a rack pair: a line for each direction, and the same in words.

import { get } from "./api.js";
import { el, mbps, svg } from "./dom.js";
import { HOUR_S, line } from "./spark.js";
import { clock } from "./times.js";

const [WIDTH, HEIGHT] = [600, 120];

const lasting = (seconds) => (seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`);

function words({ name, samples }, interval) {
  const known = samples.filter((rate) => rate !== null);
  if (!known.length) return `${name}: not known.`;
  const now = samples.at(-1) === null ? "not known at the last sample" : `${mbps(samples.at(-1))} Mb/s at the last sample`;
  const mean = known.reduce((sum, rate) => sum + rate, 0) / known.length;
  const begun = samples.findIndex((rate) => rate !== null);
  const gaps = samples.length - begun - known.length;
  return `${name}: ${now}, ${mbps(Math.max(...known))} at most, ${mbps(mean)} on average${gaps ? `; not known for ${lasting(gaps * interval)}` : ""}.`;
}

// `directions` have a name and samples of the quantity `of`; the scale ends at `full` Mb/s, or at the highest
// rate.
function plot({ interval_s: interval, unix_s: times }, directions, full, of) {
  if (interval === null) return [el("p", {}, "Not recorded: policy.poll_interval_s is 0.")];
  if (!times.length) return [el("p", {}, `No sample yet: the first comes ${interval} s after the start.`)];
  if (!directions.length) return [el("p", {}, "The circuit or rack pair is gone.")];
  const top = Math.max(full, ...directions.flatMap(({ samples }) => samples.map((rate) => rate ?? 0))) || 1;
  const lines = directions.map(({ samples }, k) => svg("path", { d: line(times, samples, top, WIDTH, HEIGHT), class: k ? "back" : "there" }));
  return [
    el("p", { className: "ends" }, el("span", {}, `${mbps(top)} Mb/s`)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "load", "aria-hidden": "true" }, ...lines),
    el("p", { className: "ends" }, el("span", {}, clock(times.at(-1) - HOUR_S)), el("span", {}, clock(times.at(-1)))),
    el("p", { className: "quiet" }, `A sample every ${interval} s: ${of}.`),
    ...directions.map((one, k) => el("p", { className: k ? "load-back" : "load-there" }, words(one, interval))),
  ];
}

function show(racks, parts) {
  const place = el("div", {}, el("p", { className: "quiet" }, "Reading the last hour…"));
  const query = new URLSearchParams([...racks.map((rack) => ["rack", rack]), ["limit", 100]]);
  get(`/v1/load?${query}`).then((document) => place.replaceChildren(...parts(document)), (error) => {
    place.replaceChildren(el("p", { className: "bad" }, error.message));
  });
  return place;
}

const same = (one, other) => one.rack === other.rack && one.port === other.port;

export const ofCircuit = (circuit) => show([circuit.a.rack, circuit.b.rack], (document) => {
  const found = document.circuits.find((one) => same(one.a, circuit.a) && same(one.b, circuit.b) && one.plane === circuit.plane);
  const directions = found === undefined ? [] : [
    { name: `${found.a.rack} to ${found.b.rack}`, samples: found.a_to_b_mbps },
    ...(found.one_way ? [] : [{ name: `${found.b.rack} to ${found.a.rack}`, samples: found.b_to_a_mbps }]),
  ];
  return plot(document, directions, circuit.rate_mbps, "the rate between the last two readings of the ports");
});

// `window`: averaging time of the pairs' rates, in seconds.
export const ofPair = (src, dst, window) => show([src, dst], (document) => [
  ...plot(document, document.pairs.map((one) => ({ name: `${one.src} to ${one.dst}`, samples: one.mbps })), 0, `the average over ${window} s`),
  el("p", { className: "quiet" }, "The busiest pairs are kept, by circuits and electrically."),
]);
