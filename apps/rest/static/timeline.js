// A reconfiguration by substep and device, to scale; and the times of reservations.

import { el } from "./dom.js";

const MOST_ROWS = 120;

function piece(from, to, all, className = "piece") {
  const bar = el("span", { className });
  bar.style.left = `${(100 * from) / all}%`;
  bar.style.width = `${(100 * (to - from)) / all}%`;
  return bar;
}

// A step as a whole stands above its devices, which begin at the same time or later.
const inOrder = (a, b) => a.started_ms - b.started_ms || (a.device !== null) - (b.device !== null);

// A step under way has no end, and is in no timeline yet: drawn from the last end until now.
function underWay(reconfiguration, last) {
  if (reconfiguration.started_unix_s === null) return null;
  const now = Date.now() - 1000 * reconfiguration.started_unix_s;
  return { step: `${reconfiguration.state}…`, device: null, started_ms: last, finished_ms: Math.max(now, last), note: "", open: true };
}

export function gantt(reconfiguration, isOver) {
  const steps = [...reconfiguration.timeline].sort(inOrder);
  const last = Math.max(0, ...steps.map((step) => step.finished_ms));
  const current = isOver ? null : underWay(reconfiguration, last);
  if (current !== null) steps.push(current);
  if (!steps.length) {
    return el("p", { className: "quiet" }, isOver ? "The reconfiguration had no substeps." : "No substep has begun yet.");
  }
  const end = Math.max(current?.finished_ms ?? last, 0.001);
  const grid = el("div", { className: "gantt" });
  for (const step of steps.slice(0, MOST_ROWS)) {
    const took = `${(step.finished_ms - step.started_ms).toFixed(1)} ms`;
    grid.append(
      el("span", { className: step.device === null ? "" : "device" }, step.device === null ? step.step : `${step.device} ${step.step}`),
      el("span", { className: "track" }, piece(step.started_ms, step.finished_ms, end, step.open ? "piece open" : "piece")),
      el("span", {}, step.open ? "" : took),
      ...(step.note ? [el("span", { className: "note" }, step.note)] : []),
    );
  }
  const more = steps.length - MOST_ROWS;
  return more > 0 ? el("div", {}, grid, el("p", { className: "quiet" }, `and ${more} more: hydra history ${reconfiguration.id}`)) : grid;
}

// From an hour ago to the last known end, at least the next hour; a bar without an end shows its start only.
export function span(reservations, now) {
  const ends = reservations.map((one) => one.expires_unix_s ?? one.start_unix_s + 3600);
  return [now - 3600, Math.max(now + 3600, ...ends)];
}

export function calendar(reservation, [first, last], now) {
  const all = last - first;
  const open = reservation.expires_unix_s === null;
  const bar = el("div", { className: "calendar" });
  bar.append(piece(Math.max(0, reservation.start_unix_s - first), (reservation.expires_unix_s ?? last) - first, all, open ? "piece open" : "piece"));
  const mark = el("span", { className: "now" });
  mark.style.left = `${(100 * (now - first)) / all}%`;
  bar.append(mark);
  return bar;
}
