// Events of the last day: a line for each kind, and a mark for each time.

import { el } from "./dom.js";

const DAY_S = 86_400;
const MOST = 1000;
const PLACES = 500; // marks closer than this part of the line are drawn as one
const KINDS = ["condition", "quarantine", "reservation", "reconfiguration", "decision", "policy", "journal", "login", "controller"];
let lines = [];
let cutAt = -Infinity; // lines from before this time are missing

const dayAgo = () => Date.now() / 1000 - DAY_S;

// Reads the last day at first, then only new lines.
export const path = () => `/v1/history?limit=${MOST}&since_unix_s=${Math.max(dayAgo(), lines[0]?.unix_s ?? 0)}`;

export function add(document) {
  const newest = lines[0]?.unix_s ?? 0;
  cutAt = Math.max(cutAt, document.next_before_unix_s ?? -Infinity);
  lines = [...document.happenings.filter((one) => one.unix_s > newest), ...lines].filter((one) => one.unix_s >= dayAgo());
  return lines;
}

function track(some, now) {
  const places = new Set(some.map((one) => Math.floor((PLACES * (one.unix_s - now + DAY_S)) / DAY_S)));
  const line = el("span", { className: "track", ariaHidden: "true" });
  for (const place of places) {
    const mark = el("span", { className: "piece" });
    mark.style.left = `${(100 * place) / PLACES}%`;
    line.append(mark);
  }
  return line;
}

export function render(place) {
  const now = Date.now() / 1000;
  const grid = el("div", { className: "gantt" });
  for (const kind of KINDS) {
    const some = lines.filter((one) => one.kind === kind);
    if (some.length) grid.append(el("span", {}, kind), track(some, now), el("span", {}, String(some.length)));
  }
  place.replaceChildren(
    ...(grid.children.length ? [grid, el("p", { className: "ends" }, el("span", {}, "a day ago"), el("span", {}, "now"))] : [el("p", { className: "quiet" }, "Nothing in the last day.")]),
    ...(cutAt >= dayAgo() ? [el("p", { className: "quiet" }, "There was more than is counted here: hydra history --since.")] : []));
}
