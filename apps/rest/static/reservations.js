// The table of reservations, of all owners or of a tenant.

import { idButton } from "./copy.js";
import { by, el, mbps, row, rows } from "./dom.js";
import { calendar, span } from "./timeline.js";
import { at, clock, told } from "./times.js";
import { along } from "./why.js";

const MOST = 1000;
const inStates = (...states) => `/v1/reservations?limit=${MOST}&${states.map((one) => `state=${one}`).join("&")}`;

// Finished reservations, of which the controller keeps a thousand, displace no unfinished reservation.
export const READS = {
  reservations: [inStates("held", "committed", "scheduled", "activating", "active", "releasing"), (document) => document.reservations],
  ended: [inStates("failed", "preempted"), (document) => document.reservations],
  deliveries: ["/v1/deliveries", (document) => new Map(document.deliveries.map((one) => [one.reservation, one]))],
};

function delivered(one) {
  const ways = one ? [one.there_mbps, one.back_mbps] : [];
  return ways.map((way) => (way === null ? "–" : mbps(way))).join(" / ");
}

// `more` makes the text below a reservation's times.
export function render({ reservations, ended, deliveries }, more = () => []) {
  const now = Date.now() / 1000;
  const current = [...reservations, ...ended].sort((a, b) => a.created_unix_s - b.created_unix_s);
  const limits = span(current, now);
  rows(by("reservations"), current.map((one) => {
    const bad = ["failed", "preempted"].includes(one.state);
    const state = el("div", {}, el("span", { className: bad ? "state bad" : "state" }, bad ? `✗ ${one.state}` : one.state), ...[one.reason].filter(Boolean).map((why) => el("div", {}, told(why))));
    const pair = el("div", {}, `${one.src} to ${one.dst}`, el("div", {}, idButton(one.id)), ...(one.booked ? [el("div", { className: "quiet" }, along(one.booked))] : []));
    const end = one.expires_unix_s === null ? ["until released"] : ["to ", at(one.expires_unix_s)];
    const time = el("div", {}, bad ? "" : calendar(one, limits, now), el("div", { className: "quiet" }, "from ", at(one.start_unix_s), " ", ...end), ...more(one));
    return row(pair, mbps(one.bandwidth_mbps), state, delivered(deliveries.get(one.id)), time);
  }), "No reservations.");
  by("calendar-span").textContent = current.length ? `${clock(limits[0])} to ${clock(limits[1])}; the mark is now. Rates in Mb/s are of the last seconds.${reservations.length < MOST ? "" : ` The first ${MOST} current reservations are shown: hydra list shows all.`}` : "";
}
