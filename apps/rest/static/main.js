// The dashboard: reads the API, draws each part, and reads again after events.

import * as actions from "./actions.js";
import { Refused, follow, get, mayBeToken, signIn, signOut, token } from "./api.js";
import * as conditions from "./conditions.js";
import * as day from "./day.js";
import * as devices from "./devices.js";
import { by, count, el, say } from "./dom.js";
import * as fabric from "./fabric.js";
import * as pairs from "./pairs.js";
import * as policy from "./policy.js";
import * as reconfigurations from "./reconfigurations.js";
import * as reservations from "./reservations.js";
import { OVER, isMoving, operates, seen, session } from "./state.js";
import * as tenant from "./tenant.js";
import * as tiles from "./tiles.js";
import { clock, told, zone } from "./times.js";

const PAUSE_MS = 2000;
const SOON_MS = 100;
const MOVING_MS = 400;
const LATE_MS = 6000;
let timer = null;
let due = Infinity;
let reading = false;
let asked = 0; // start of the read under way
let silent = false; // the last read got no answer
let stale = false; // the last read failed
let again = false;
let shownAt = null;

const OF_THE_NETWORK = {
  topology: ["/v1/topology", (document) => document],
  demand: ["/v1/demand", (document) => document],
  reconfigurations: ["/v1/reconfigurations", (document) => document.reconfigurations],
  ...reservations.READS,
  devices: ["/v1/devices", (document) => document.devices],
  quarantine: ["/v1/quarantine", (document) => document.ports],
  history: ["/v1/history?limit=50", (document) => document.happenings],
  day: [day.path, day.add],
  decisions: ["/v1/decisions", (document) => document.decisions],
  missing: ["/readyz?standby=true", () => [], ({ document }) => document.missing ?? [document.detail]],
  conditions: ["/v1/conditions", (document) => document.conditions, () => null],
};

const address = (path) => (typeof path === "function" ? path() : path);

async function refresh() {
  if (reading) {
    again = true;
    return;
  }
  reading = true;
  clearTimeout(timer);
  due = Infinity;
  const started = asked = performance.now();
  try {
    const reads = session.who.role === "tenant" ? tenant.READS : OF_THE_NETWORK;
    const names = Object.keys(reads);
    const documents = await Promise.all(names.map((name) => get(address(reads[name][0])).catch(telling)));
    const leaderless = documents.some((one) => one instanceof Refused && one.nobodyLeads);
    names.forEach((name, index) => {
      const [, take, refused] = reads[name];
      const one = documents[index];
      if (leaderless && !refused) return;
      seen[name] = one instanceof Refused ? refused(one) : take(one);
    });
    if (leaderless) {
      renderLeaderless();
    } else {
      shownAt = Date.now() / 1000;
      silent = stale = false;
      by("error").hidden = true;
      render();
      performance.mark("hydra-shown");
      document.body.dataset.looks = Number(document.body.dataset.looks ?? 0) + 1;
    }
  } catch (error) {
    stale = true;
    fail(error);
  }
  reading = false;
  // A large fabric takes a moment to describe: reading takes at most a quarter of the time. A slow answer may
  // also come from a controller that hangs, so the page asks again soon.
  const pause = again ? SOON_MS : Math.max(isMoving() ? MOVING_MS : PAUSE_MS, silent ? 0 : Math.min(3 * (performance.now() - started), LATE_MS));
  again = false;
  look(pause);
}

// A refusal about the controller itself: not ready, or without a leader.
function telling(error) {
  if (error instanceof Refused && (error.nobodyLeads || error.document.type === "/problems/not-ready")) return error;
  throw error;
}

// The earliest requested look counts: a row of events must not postpone the look.
function look(pause) {
  if (by("sign-in").open) return; // the page looks after the sign-in
  const when = performance.now() + pause;
  if (when >= due) return;
  clearTimeout(timer);
  due = when;
  timer = setTimeout(refresh, pause);
}

function soon() {
  if (reading) again = true;
  else look(SOON_MS);
}

// A substep is shown at once: reading a single reconfiguration costs little, for any size of the fabric.
async function happened(kind, event) {
  if (kind !== "reconfiguration" || seen.reconfigurations === undefined) return soon();
  if (OVER.has(event.reconfiguration.state)) soon();
  const one = await get(`/v1/reconfigurations/${event.reconfiguration.id}`).catch(() => null);
  if (one === null) return;
  const place = seen.reconfigurations.findIndex((other) => other.id === one.id);
  seen.reconfigurations.splice(Math.max(place, 0), place < 0 ? 0 : 1, one);
  reconfigurations.renderList();
}

function fail(error) {
  if (error instanceof Refused && error.status === 401) {
    if (error.token === token()) askForToken(error.token !== null); // otherwise the user has given another token meanwhile
    return;
  }
  silent = !(error instanceof Refused);
  age();
  by("error").hidden = false;
  const words = error instanceof Refused ? told(error.message) : "The controller does not answer";
  say(by("error"), stale || silent ? `${words}; trying again.${shownAt === null ? "" : " The page shows old data."}` : words);
}

// The present state is unknown while the controller does not answer: the connection is refused or hangs, or a
// proxy or the controller reports an error.
function age() {
  const late = reading && performance.now() - asked > LATE_MS;
  if (shownAt === null || !(stale || silent || late)) return;
  renderSummary(`as of ${clock(shownAt)}, ${Math.round(Date.now() / 1000 - shownAt)} s ago`);
  if (seen.conditions?.length === 0) conditions.renderUnknown();
}

// `wrong`: the request had a token, which belongs to no caller.
function askForToken(wrong) {
  if (by("sign-in").open) return;
  signOut();
  by("wrong-token").hidden = !wrong;
  by("sign-in").showModal();
}

function render() {
  if (session.who.role === "tenant") {
    renderSummary();
    tenant.render(seen, act);
    return;
  }
  by("name").textContent = seen.topology.fabric;
  renderSummary();
  conditions.render();
  tiles.render(seen);
  fabric.update();
  pairs.render();
  reconfigurations.render();
  reservations.render(seen);
  devices.render(act);
}

// If no controller leads, a standby reports the reason and the conditions, and no other present state.
function renderLeaderless() {
  silent = session.who.role === "tenant";
  if (silent) {
    age();
  } else {
    renderSummary();
    conditions.render();
  }
  by("error").hidden = false;
  say(by("error"), "No controller leads; trying again. The page shows old data of the network.");
}

// The last reading says nothing about the present state: the page shows it grey, with its age.
function renderSummary(age = "") {
  by("summary").ariaLive = age ? "off" : "polite"; // the age grows every second
  if (session.who.role === "tenant") return say(by("summary"), `${tenant.summary(seen)}${age ? ` ${age}` : ""}`);
  const { topology, missing, conditions } = seen;
  const word = (good, yes, no) => el("span", { className: age ? "old" : good ? "good" : "bad" }, good ? `${age ? "" : "✓ "}${yes}` : `${age ? "" : "✗ "}${no}`);
  const health = conditions === null ? el("span", { className: "old" }, "health not known") : word(!conditions.length, "healthy", `not healthy: ${count(conditions.length, "thing")} wrong`);
  say(by("summary"),
    word(!missing.length, "ready", "not ready"), " · ", health, age ? ` ${age}` : "",
    topology === undefined ? "" : el("span", { className: "figures" }, ` · epoch ${topology.epoch} · ${count(topology.racks.length, "rack")} · ${count(topology.planes.length, "plane")} · ${count(topology.circuits.length, "circuit")} · ${count(topology.paths.length, "path")}`));
}

const act = (action) => actions.act(action, soon, fail);

// The page depends on the caller's role: buttons that the controller would refuse are hidden.
async function begin() {
  try {
    session.who = await get("/v1/whoami");
  } catch (error) {
    stale = true;
    fail(error);
    if (!(error instanceof Refused && error.status === 401)) setTimeout(begin, PAUSE_MS);
    return;
  }
  by("error").hidden = true;

  by("who").textContent = `${session.who.name}, ${session.who.role}`;
  by("name").textContent = "";
  for (const one of document.querySelectorAll(".operators")) one.hidden = !operates();
  by("policy").hidden = !["viewer", "operator"].includes(session.who.role);
  if (session.who.role === "agent") {
    by("summary").textContent = "Agents report with a token; this page has no content for agents.";
    return;
  }
  if (session.who.role === "tenant") tenant.begin(act);
  by("main").hidden = false;
  refresh();
  listen();
}

async function listen() {
  for (;;) {
    try {
      await follow(happened, () => { by("connection").textContent = "● live"; });
    } catch (error) {
      if (error instanceof Refused && error.status !== 401 && !error.nobodyLeads) fail(error);
    }
    say(by("connection"), "○ not live: connecting again");
    await new Promise((done) => setTimeout(done, PAUSE_MS));
    await signedIn();
    await become();
  }
}

const signedIn = () => new Promise((done) => {
  if (by("sign-in").open) by("sign-in").addEventListener("close", done, { once: true });
  else done();
});

// A stream ends with its token, and with a change of its role: the page is then loaded for the new role.
async function become() {
  const now = await get("/v1/whoami").catch(() => session.who);
  if (now.name !== session.who.name || now.role !== session.who.role) location.reload();
}

by("plan").addEventListener("click", () => act(actions.plan));
by("policy").addEventListener("click", () => act(() => policy.show(operates())));
by("reconfiguration").addEventListener("change", reconfigurations.renderChosen);
by("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("token").value.trim();
  by("token").value = "";
  by("wrong-token").hidden = mayBeToken(text);
  if (!mayBeToken(text)) return;
  signIn(text);
  by("sign-in").close();
  if (session.who === null) begin();
  else location.reload(); // with the caller's present role
});
by("sign-in").addEventListener("close", () => {
  if (token() === null) by("sign-in").showModal(); // without a token there is nothing to show
});
fabric.listen();
pairs.listen();
devices.listen(act);
by("zone").textContent = `times in ${zone()}`;
setInterval(age, 1000);
const redraw = () => {
  if (seen.topology === undefined) return;
  fabric.render();
  pairs.redraw();
};
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
begin();
