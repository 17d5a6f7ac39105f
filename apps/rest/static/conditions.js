// Conditions: a band that takes room only while there are conditions.

import { copyButton } from "./copy.js";
import { by, el, say } from "./dom.js";
import { seen } from "./state.js";
import { told, when } from "./times.js";

const MOST_NAMED = 6;

function named(names, total, what) {
  const some = names.slice(0, MOST_NAMED);
  return some.length ? [`${what} ${some.join(", ")}${total > some.length ? ` and ${total - some.length} more` : ""}`] : [];
}

function affected(condition) {
  const all = [
    ...named(condition.pairs.map((pair) => `${pair.src}–${pair.dst}`), condition.pairs_total, "pairs"),
    ...named(condition.reservations, condition.reservations_total, "reservations"),
  ];
  return all.length ? `; affects ${all.join("; ")}` : "";
}

const item = (condition) => el("li", { className: "bad-thing" },
  el("p", {}, el("strong", {}, `▲ ${told(condition.what)}`)),
  el("p", { className: "quiet" }, "Since ", when(condition.since_unix_s), `${affected(condition)}. Done: ${told(condition.done)}.`),
  el("p", {}, `To do: ${told(condition.to_do)}: `, el("code", {}, condition.command), " ", copyButton(condition.command)));

// While no controller answers, conditions are unknown.
export function renderUnknown() {
  by("wrong").hidden = false;
  say(by("conditions"), el("li", { className: "old" }, "Not known."));
}

export function render() {
  const { missing, conditions } = seen;
  by("missing").hidden = !missing.length;
  by("missing").textContent = missing.length ? `Not ready: ${missing.join("; ")}.` : "";
  if (conditions === null) return renderUnknown();
  by("wrong").hidden = !missing.length && !conditions.length;
  say(by("conditions"), ...conditions.map(item));
}
