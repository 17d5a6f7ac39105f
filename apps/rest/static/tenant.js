// The page of a tenant: reservations, quota, available bandwidth, and booking.

import { UNANSWERED, ask, done, risks } from "./actions.js";
import { get, isUnknown, send } from "./api.js";
import { by, count, el, keepFocus, mbps } from "./dom.js";
import * as reservations from "./reservations.js";
import { clock, told } from "./times.js";
import { along } from "./why.js";

const HOUR_S = 3600;
const AT_WORK = new Set(["held", "scheduled", "activating", "active"]);

export const READS = {
  ...reservations.READS,
  quotas: ["/v1/quotas", (document) => document.quotas],
};

// The names of ends for reservations do not change while a controller runs.
async function offerEnds() {
  const { servers } = await get("/v1/servers");
  const names = [...new Set(servers.map((one) => one.rack)), ...servers.map((one) => one.name)];
  by("ends").replaceChildren(...names.map((value) => el("option", { value })));
}

export function begin(act) {
  by("main").replaceChildren(by("tenant").content, by("reservations-section"));
  by("main").className = "own";
  by("skip").href = "#book-section";
  by("skip").textContent = "Skip to the text";
  by("book").addEventListener("submit", (event) => {
    event.preventDefault();
    act(book);
  });
  offerEnds().catch(() => {});
}

export function render(seen, act) {
  keepFocus(by("reservations"), () => reservations.render(seen, (one) => [el("div", { className: "buttons-here" }, ...buttons(one, act))]));
  by("quota").textContent = seen.quotas.map(quota).join(" ");
}

export const summary = ({ reservations: many }) => count(many.filter((one) => AT_WORK.has(one.state)).length, "reservation");

function quota(one) {
  const of = (limit) => (limit === null ? "" : ` of ${mbps(limit)}`);
  return `You have ${one.reservations}${of(one.max_reservations)} reservations and at most ${mbps(one.peak_mbps)}${of(one.max_mbps)} Mb/s at a time.`;
}

function buttons(one, act) {
  const button = (word, action) => {
    const made = el("button", { type: "button" }, `${word}…`);
    made.dataset.key = `${word} ${one.id}`;
    made.setAttribute("aria-label", `${word} ${one.id}, ${one.src} to ${one.dst}`);
    made.addEventListener("click", () => act(() => action(one)));
    return made;
  };
  if (one.state === "failed") return [button("Release", release)]; // a failed reservation is listed until its release
  if (!AT_WORK.has(one.state)) return [];
  return [...(one.state === "held" ? [button("Keep", keep)] : []), button("Change", change), button("Release", release)];
}

const place = ({ id, bundle }) => `/v1/reservations/${encodeURIComponent(bundle ?? id)}`;
const times = (one) => `from ${clock(one.start_unix_s)} ${one.expires_unix_s === null ? "until released" : `to ${clock(one.expires_unix_s)}`}`;

// The entered values, without empty fields.
function wanted() {
  const body = { src: by("book-src").value.trim(), dst: by("book-dst").value.trim(), bandwidth_mbps: Number(by("book-mbps").value) };
  if (by("book-start").value) body.start_unix_s = new Date(by("book-start").value).getTime() / 1000;
  if (by("book-hours").value) body.duration_s = Number(by("book-hours").value) * HOUR_S;
  return body;
}

// An alternative without a start has the requested start.
const fits = (one) => `${mbps(one.bandwidth_mbps)} Mb/s${one.start_unix_s ? ` from ${clock(one.start_unix_s)}` : ""}`;

// Shows a refusal; resolves to the chosen alternative, or null. The nearest alternative comes first.
async function alternative(error, title, all) {
  const [first, ...others] = all;
  const text = [el("p", {}, isUnknown(error) ? UNANSWERED : told(error.message)), ...(first ? [el("p", {}, "Available instead:")] : [])];
  const chosen = await ask(title, text, first ? `Take ${fits(first)}` : "", { others: others.map((one, k) => [String(k), `Take ${fits(one)}`]) });
  if (!chosen) return null;
  return chosen === "yes" ? first : others[Number(chosen)];
}

// Shows the expected outcome, and books after the user agrees; after a refusal, offers alternatives.
async function book() {
  let body = wanted();
  for (;;) {
    let seen;
    try {
      seen = await send("POST", "/v1/reservations/preview", body);
    } catch (error) {
      const chosen = await alternative(error, error.status === 409 ? "The reservation does not fit" : "The reservation can't be booked", error.document?.alternatives ?? []);
      if (chosen === null) return false;
      body = { ...body, bandwidth_mbps: chosen.bandwidth_mbps, ...(chosen.start_unix_s && { start_unix_s: chosen.start_unix_s }) };
      continue;
    }
    const text = el("p", {}, `${body.src} to ${body.dst}, ${mbps(seen.bandwidth_mbps)} Mb/s in both directions, ${times(seen)}, by ${seen.booked ? along(seen.booked) : seen.parts.map((part) => `${along(part.booked)} (${part.src} to ${part.dst}, ${mbps(part.bandwidth_mbps)} Mb/s)`).join(", ")}.`);
    if (!(await ask("The reservation fits", [text, ...risks(seen)], "Book path"))) return false;
    return done("Not booked", () => send("POST", "/v1/reservations", body));
  }
}

async function change(one) {
  const rate = el("input", { type: "number", min: 0, step: "any", value: one.bandwidth_mbps, required: true });
  const hours = el("input", { type: "number", min: 0, step: "any" });
  const text = [
    el("p", {}, `${one.src} to ${one.dst}, ${mbps(one.bandwidth_mbps)} Mb/s, ${times(one)}. The traffic is not interrupted.`),
    el("p", { className: "controls" }, el("label", {}, "Mb/s ", rate), el("label", {}, "End in hours from now (empty: unchanged) ", hours)),
  ];
  if (!(await ask(`Change ${one.id}?`, text, "Change reservation"))) return false;
  const body = { bandwidth_mbps: Number(rate.value) };
  if (hours.value) body.end_unix_s = Date.now() / 1000 + Number(hours.value) * HOUR_S;
  for (;;) {
    try {
      await send("PATCH", place(one), body);
      return true;
    } catch (error) {
      const now = (error.document?.alternatives ?? []).filter((other) => !other.start_unix_s);
      if (!now.length) return done("Not changed", () => Promise.reject(error));
      const chosen = await alternative(error, "The reservation does not fit", now);
      if (chosen === null) return false;
      body.bandwidth_mbps = chosen.bandwidth_mbps;
    }
  }
}

async function keep(one) {
  const text = `${one.src} to ${one.dst}, ${mbps(one.bandwidth_mbps)} Mb/s, ${times(one)}. The reservation is held, and ends unless kept.`;
  if (!(await ask(`Keep ${one.id}?`, [el("p", {}, text)], "Keep reservation"))) return false;
  return done("Not kept", () => send("POST", `${place(one)}/commit`));
}

async function release(one) {
  const text = `${one.src} to ${one.dst}, ${mbps(one.bandwidth_mbps)} Mb/s, ${times(one)}. ${one.state === "failed" ? "The failed reservation is not listed any more then." : "From then on the traffic has no promised bandwidth."}${one.bundle ? ` The whole bundle ${one.bundle} is released.` : ""}`;
  if (!(await ask(`Release ${one.id}?`, [el("p", {}, text)], "Release reservation", { isFinal: true }))) return false;
  return done("Not released", () => send("DELETE", place(one)));
}
