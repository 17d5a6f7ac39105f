// Moments in words: "2 min ago" within an hour, else "13:19:38", with the date unless it is today's.

import { el } from "./dom.js";

const HOUR_S = 3600;
const LANGUAGE = "en-GB";
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const DAY = { day: "numeric", month: "short", year: "numeric" };
const FULL = { dateStyle: "full", timeStyle: "long" }; // with the zone
const UTC = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g;

export function clock(unix) {
  const moment = new Date(unix * 1000);
  const time = moment.toLocaleTimeString(LANGUAGE, TIME);
  if (moment.toDateString() === new Date().toDateString()) return time;
  return `${moment.toLocaleDateString(LANGUAGE, DAY)}, ${time}`;
}

export function ago(unix) {
  const age = Date.now() / 1000 - unix;
  if (age < 0 || age >= HOUR_S) return clock(unix);
  return age < 60 ? "just now" : `${Math.floor(age / 60)} min ago`;
}

// The name of the time zone of all times on the page.
export const zone = () => new Intl.DateTimeFormat(LANGUAGE, { timeZoneName: "short" }).formatToParts().find((part) => part.type === "timeZoneName").value;

const element = (unix, text) => el("time", {
  dateTime: new Date(unix * 1000).toISOString(),
  title: new Date(unix * 1000).toLocaleString(LANGUAGE, FULL),
}, text);

// A past moment, as an element that shows the full date when the pointer is on it.
export const when = (unix) => element(unix, ago(unix));
// A past or future moment, likewise.
export const at = (unix) => element(unix, clock(unix));

// A sentence of the controller, with its moments in the form of `clock`.
export const told = (text) => text.replace(UTC, (moment) => clock(Date.parse(moment) / 1000));
