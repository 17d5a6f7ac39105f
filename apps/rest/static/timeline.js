// One reconfiguration by substep and device, to scale; and when reservations run.

import { el } from "./dom.js";

const MOST_ROWS = 120;

function piece(from, to, all, className = "piece") {
  const bar = el("span", { className });
  bar.style.left = `${(100 * from) / all}%`;
  bar.style.width = `${(100 * (to - from)) / all}%`;
  return bar;
}

export function gantt(reconfiguration) {
  const steps = reconfiguration.timeline;
  if (!steps.length) {
    return el("p", { className: "quiet" }, "No substep has ended yet.");
  }
  const end = Math.max(...steps.map((step) => step.finished_ms), 0.001);
  const grid = el("div", { className: "gantt" });
  for (const step of steps.slice(0, MOST_ROWS)) {
    const took = `${(step.finished_ms - step.started_ms).toFixed(1)} ms`;
    grid.append(
      el("span", { className: step.device === null ? "" : "device" }, step.device ?? step.step),
      el("span", { className: "track", title: `${step.step}: ${took} ${step.note}` }, piece(step.started_ms, step.finished_ms, end)),
      el("span", {}, took),
    );
  }
  const more = steps.length - MOST_ROWS;
  return more > 0 ? el("div", {}, grid, el("p", { className: "quiet" }, `and ${more} more: hydra history ${reconfiguration.id}`)) : grid;
}

// From an hour ago to the last end that is known, at least the next hour.
export function span(reservations, now) {
  const ends = reservations.map((one) => one.expires_unix_s ?? 0);
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
