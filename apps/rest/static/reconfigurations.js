// Reconfigurations: one reconfiguration by substep and device, decisions, and events.

import { idButton } from "./copy.js";
import * as day from "./day.js";
import { by, count, el, options, row, rows, say } from "./dom.js";
import { OVER, seen } from "./state.js";
import { gantt } from "./timeline.js";
import { clock, told, when } from "./times.js";
import { describe } from "./why.js";

const MOST_DECISIONS = 20;

function facts(change) {
  const isOver = OVER.has(change.state);
  const done = isOver ? [`${count(change.connected.length, "circuit")} up, ${change.disconnected.length} down`, count(change.rules_pushed, "rule")] : [];
  const of = change.stages_expected === null ? "" : ` of about ${change.stages_expected}`;
  const stages = change.stages_expected === 1 ? [] : [`${change.stages_done}${of} stages made${change.paused ? ", paused" : ""}`];
  const failed = change.failures.map((failure) => `${describe(failure.circuit)}: ${failure.reason}`);
  return [`: ${change.state}`, ...stages, ...done, told(change.reason), ...failed.map(told)].filter(Boolean).join(" · ");
}

export function renderChosen() {
  const change = seen.reconfigurations.find((other) => other.id === by("reconfiguration").value) ?? seen.reconfigurations[0];
  if (change === undefined) {
    by("reconfiguration-facts").textContent = "None since the controller was started.";
    by("timeline").replaceChildren();
    return;
  }
  say(by("reconfiguration-facts"), idButton(change.id), facts(change));
  by("timeline").replaceChildren(gantt(change, OVER.has(change.state)));
}

// Without a choice, the latest reconfiguration is shown.
export function renderList() {
  const words = (change) => `${clock(change.created_unix_s)} ${change.trigger}: ${change.state}`;
  options(by("reconfiguration"), [["", "the latest"], ...seen.reconfigurations.map((change) => [change.id, words(change)])]);
  renderChosen();
}

export function render() {
  renderList();
  say(by("decisions"), ...seen.decisions.slice(0, MOST_DECISIONS).map((words) => el("li", {}, told(words))));
  day.render(by("day"));
  rows(by("history"), seen.history.map((happening) => row(
    el("div", {}, when(happening.unix_s), el("div", { className: "quiet" }, happening.kind)), told(happening.text))), "Nothing yet.");
}
