// The dashboard: reads the API, draws, and reads again when something happens.

import * as actions from "./actions.js";
import { Refused, follow, get, mayBeToken, signIn, signOut, token } from "./api.js";
import * as day from "./day.js";
import { by, clock, count, el, keepFocus, mbps, open, options, row, rows, say, told } from "./dom.js";
import * as heat from "./heat.js";
import { ofPair } from "./load.js";
import * as reservations from "./reservations.js";
import * as ring from "./ring.js";
import * as tenant from "./tenant.js";
import { gantt } from "./timeline.js";
import { describe, explain, said } from "./why.js";

const PAUSE_MS = 2000;
const SOON_MS = 100;
const MOVING_MS = 400;
const OVER = new Set(["done", "partial", "refused", "failed"]);
const FRAMED_RACKS = 64;
const MOST_CIRCUITS = 100;
const MOST_DEVICES = 100;
const FEW_RACKS = 64;
const MOST_LISTED = 10;
const IDLE = 0.01; // of a circuit's rate
const LATE_MS = 6000;
const seen = {};
let timer = null;
let due = Infinity;
let reading = false;
let asked = 0; // when the reading under way began
let silent = false; // no answer came to the last one
let stale = false; // nothing came of it
let again = false;
let shownAt = null;
let who = null;

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
    const reads = who.role === "tenant" ? tenant.READS : OF_THE_NETWORK;
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
  // A large fabric takes a moment to describe: no more than a quarter of the time goes into it. But
  // what takes long may be a controller that hangs, and that is a reason to ask again soon.
  const moving = seen.reconfigurations?.some((one) => !OVER.has(one.state));
  const pause = again ? SOON_MS : Math.max(moving ? MOVING_MS : PAUSE_MS, silent ? 0 : Math.min(3 * (performance.now() - started), LATE_MS));
  again = false;
  look(pause);
}

// A refusal that tells of the controller itself: it is not ready, or none leads.
function telling(error) {
  if (error instanceof Refused && (error.nobodyLeads || error.document.type === "/problems/not-ready")) return error;
  throw error;
}

// The earliest look that was asked for counts: events that keep coming must not put it off.
function look(pause) {
  if (by("sign-in").open) return; // whoever signs in has the page look
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

// A substep is told of at once: reading one reconfiguration costs little, however large the fabric.
async function happened(kind, event) {
  if (kind !== "reconfiguration" || seen.reconfigurations === undefined) return soon();
  if (OVER.has(event.reconfiguration.state)) soon();
  const one = await get(`/v1/reconfigurations/${event.reconfiguration.id}`).catch(() => null);
  if (one === null) return;
  const place = seen.reconfigurations.findIndex((other) => other.id === one.id);
  seen.reconfigurations.splice(Math.max(place, 0), place < 0 ? 0 : 1, one);
  renderReconfigurations();
}

function fail(error) {
  if (error instanceof Refused && error.status === 401) {
    if (error.token === token()) askForToken(error.token !== null); // else another one was given meanwhile
    return;
  }
  silent = !(error instanceof Refused);
  age();
  by("error").hidden = false;
  const words = error instanceof Refused ? told(error.message) : "The controller does not answer";
  say(by("error"), stale || silent ? `${words}; trying again.${shownAt === null ? "" : " What is shown is old."}` : words);
}

// Nobody knows what is now while the controller does not answer: it refuses connections, or hangs,
// or a proxy before it, or it itself, tells of an error instead.
function age() {
  const late = reading && performance.now() - asked > LATE_MS;
  if (shownAt === null || !(stale || silent || late)) return;
  renderSummary(`as of ${clock(shownAt)}, ${Math.round(Date.now() / 1000 - shownAt)} s ago`);
  if (seen.conditions?.length === 0) by("conditions").replaceChildren(el("li", { className: "old" }, "Not known."));
}

// `wrong`: a token was sent, and is nobody's.
function askForToken(wrong) {
  if (by("sign-in").open) return;
  signOut();
  by("wrong-token").hidden = !wrong;
  by("sign-in").showModal();
}

function render() {
  if (who.role === "tenant") {
    renderSummary();
    tenant.render(seen, act);
    return;
  }
  const { topology, demand } = seen;
  by("name").textContent = topology.fabric;
  renderSummary();
  renderConditions();
  const total = demand.entries.reduce((sum, entry) => sum + entry.rate_mbps, 0);
  by("demand-summary").textContent = demand.source === "none" ? "No demand has been measured yet." : `${mbps(total)} Mb/s measured, on average over ${demand.window_s} s${demand.stale.length ? `; counters are late from ${count(demand.stale.length, "server")}` : ""}.${topology.racks.length <= FRAMED_RACKS ? " Framed pairs have a path of circuits; those with a corner cut off are held back by something full." : ""}`;
  renderFabric();
  renderElectrical();
  heat.update(by("heat"), topology, demand);
  renderReconfigurations();
  say(by("decisions"), ...seen.decisions.slice(0, 20).map((words) => el("li", {}, told(words))));
  day.render(by("day"));
  rows(by("history"), seen.history.map((one) => row(
    el("div", {}, clock(one.unix_s), el("div", { className: "quiet" }, one.kind)), told(one.text))), "Nothing yet.");
  reservations.render(seen);
  renderDevices();
}

// Where no controller leads, one that stands by says why and what is wrong, and nothing else of now.
function renderLeaderless() {
  silent = who.role === "tenant";
  if (silent) {
    age();
  } else {
    renderSummary();
    renderConditions();
  }
  by("error").hidden = false;
  say(by("error"), "No controller leads; trying again. What is shown of the network is old.");
}

// What was seen last says nothing of now: it is grey, with its age.
function renderSummary(age = "") {
  by("summary").ariaLive = age ? "off" : "polite"; // it grows by the second
  if (who.role === "tenant") return say(by("summary"), `${tenant.summary(seen)}${age ? ` ${age}` : ""}`);
  const { topology, missing, conditions } = seen;
  const word = (good, yes, no) => el("span", { className: age ? "old" : good ? "good" : "bad" }, good ? `${age ? "" : "✓ "}${yes}` : `${age ? "" : "✗ "}${no}`);
  const health = conditions === null ? el("span", { className: "old" }, "health not known") : word(!conditions.length, "healthy", `not healthy: ${count(conditions.length, "thing")} wrong`);
  say(by("summary"),
    word(!missing.length, "ready", "not ready"), " · ", health, age ? ` ${age}` : "",
    topology === undefined ? "" : ` · epoch ${topology.epoch} · ${count(topology.racks.length, "rack")} · ${count(topology.planes.length, "plane")} · ${count(topology.circuits.length, "circuit")} · ${count(topology.paths.length, "path")}`);
}

function renderConditions() {
  by("missing").hidden = !seen.missing.length;
  by("missing").textContent = seen.missing.length ? `Not ready: ${seen.missing.join("; ")}.` : "";
  if (seen.conditions === null) {
    by("conditions").replaceChildren(el("li", { className: "old" }, "Not known."));
    return;
  }
  const many = seen.conditions.map((one) => el("li", { className: "bad-thing" },
    el("p", {}, el("strong", {}, told(one.what))),
    el("p", { className: "quiet" }, `Since ${clock(one.since_unix_s)}${affected(one)}`),
    el("p", {}, `Done: ${told(one.done)}.`),
    el("p", {}, `To do: ${told(one.to_do)}: `, el("code", {}, one.command))));
  say(by("conditions"), ...(many.length ? many : [el("li", { className: "good" }, "✓ Nothing.")]));
}

function affected(one) {
  const some = (names, total, what) => (names.length ? [`${what} ${names.join(", ")}${total > names.length ? ` and ${total - names.length} more` : ""}`] : []);
  const all = [
    ...some(one.pairs.map((pair) => `${pair.src}–${pair.dst}`), one.pairs_total, "pairs"),
    ...some(one.reservations, one.reservations_total, "reservations"),
  ];
  return all.length ? `; affects ${all.join("; ")}` : "";
}

// A rack that is asked for is looked for on all planes.
function renderFabric() {
  const { topology } = seen;
  if (topology === undefined) return;
  const failing = troubles();
  const known = topology.planes.map((plane) => plane.name);
  const names = [...known].sort((a, b) => failing.has(b) - failing.has(a)); // those that fail first
  const first = by("plane").options.length === 0;
  options(by("plane"), [["", "all"], ...names.map((name) => [name, failing.has(name) ? `✗ ${name}` : name])]);
  if (first && topology.racks.length > FEW_RACKS) by("plane").value = failing.size ? names[0] : busiest();
  if (by("racks").children.length !== topology.racks.length) {
    by("racks").replaceChildren(...topology.racks.map((value) => el("option", { value })));
  }
  const rack = by("rack").value.trim();
  const found = topology.racks.includes(rack);
  const plane = found ? "" : by("plane").value;
  say(by("no-rack"), rack && !found ? `There is no rack ${rack}.` : found && by("plane").value ? `${rack} on all planes` : "");
  const shown = topology.circuits.filter((one) =>
    (plane === "" || one.plane === plane) && (!found || one.a.rack === rack || one.b.rack === rack));
  ring.draw(by("ring"), topology, shown, found ? rack : null);
  by("legend").replaceChildren(...(plane === "" ? names : [plane]).map((name) => legend(name, known.indexOf(name), plane !== "", failing.get(name))));
  const dead = deadPlanes();
  const busy = [...shown].sort((a, b) => failing.has(b.plane) - failing.has(a.plane) || ring.load(b) - ring.load(a));
  keepFocus(by("circuits"), () => rows(by("circuits"), busy.slice(0, MOST_CIRCUITS).map((one) => circuitRow(one, dead.has(one.plane))), "No circuits."));
  const more = busy.length - MOST_CIRCUITS;
  by("circuits-more").textContent = more > 0 ? `and ${more} with less load: choose a plane or a rack` : "";
  const idle = shown.filter((one) => ring.load(one) < IDLE).map(describe);
  by("idle").textContent = idle.length ? `${count(idle.length, "circuit")} with less than 1% load: ${listed(idle)}` : "";
}

// Planes whose mirrors stay as they are, since nobody can move them. Devices may be 10,000.
const deadPlanes = () => new Set(seen.devices.filter((one) => one.kind === "optical-switch" && !one.connected).map((one) => one.name));

const listed = (names) => names.slice(0, MOST_LISTED).join(", ") + (names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : "");

// What is wrong with planes, by name; those with which nothing is are not in it.
function troubles() {
  const found = new Map();
  const add = (name, words) => found.set(name, [...(found.get(name) ?? []), words]);
  for (const one of seen.devices.filter((device) => device.kind === "optical-switch")) {
    if (!one.connected) add(one.name, "can't be commanded");
    if (one.alarms.length) add(one.name, count(one.alarms.length, "alarm"));
  }
  for (const { name } of seen.topology.planes) {
    const out = seen.quarantine.filter((port) => port.plane === name).length;
    if (out) add(name, `${count(out, "port")} out`);
  }
  return found;
}

// The largest demands that no path of circuits serves, in either direction.
function renderElectrical() {
  const { topology, demand } = seen;
  const served = new Set(topology.paths.flatMap((one) => [`${one.src} ${one.dst}`, ...(one.one_way ? [] : [`${one.dst} ${one.src}`])]));
  const hottest = []; // there are 100,000 entries where racks are many: sorted are only these few
  for (const one of demand.entries) {
    const least = hottest.length < MOST_LISTED ? 0 : hottest.at(-1).rate_mbps;
    if (one.rate_mbps <= least || served.has(`${one.src} ${one.dst}`)) continue;
    hottest.push(one);
    hottest.sort((a, b) => b.rate_mbps - a.rate_mbps).splice(MOST_LISTED);
  }
  keepFocus(by("electrical"), () => rows(by("electrical"), hottest.map(pairRow), "None."));
}

function busiest() {
  const sums = new Map();
  for (const one of seen.topology.circuits) sums.set(one.plane, (sums.get(one.plane) ?? 0) + ring.load(one));
  return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";
}

function legend(name, index, alone, wrong) {
  const { colour, dash } = ring.style(index);
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  const line = document.createElementNS(space, "line");
  for (const [key, value] of Object.entries({ x1: 0, y1: 5, x2: 36, y2: 5, stroke: colour, "stroke-width": 3, "stroke-dasharray": (!alone && dash.join(" ")) || "none" })) line.setAttribute(key, value);
  picture.append(line);
  const many = seen.topology.circuits.filter((one) => one.plane === name).length;
  return el("li", {}, picture, `${name}: ${many}`, ...(wrong ? [el("span", { className: "bad" }, ` ✗ ${wrong.join(", ")}`)] : []));
}

function tell(title, ...parts) {
  by("why-title").textContent = title;
  by("why-text").replaceChildren(...parts);
  open(by("why"));
}

function pairRow(one) {
  const button = el("button", { type: "button" }, "hour");
  button.dataset.key = `${one.src} ${one.dst}`;
  button.setAttribute("aria-label", `The last hour of ${one.src} to ${one.dst}`);
  button.addEventListener("click", () => tellOfPair(one.src, one.dst));
  return row(`${one.src} to ${one.dst}`, mbps(one.rate_mbps), mbps(one.estimated_mbps), button);
}

const tellOfPair = (src, dst) => tell(`${src} to ${dst}, the last hour`, ofPair(src, dst, seen.demand.window_s), ...said(src, dst));

function circuitRow(circuit, isDead) {
  const share = ring.load(circuit);
  const meter = el("meter", { max: 1, value: share, high: 0.9, optimum: 0 });
  meter.setAttribute("aria-label", "load");
  const button = el("button", { type: "button" }, "why?");
  button.dataset.key = `${circuit.a.rack} ${circuit.a.port}`;
  button.setAttribute("aria-label", `Why is ${describe(circuit)} here?`);
  button.addEventListener("click", () => tell("Why is this circuit here?", ...explain(circuit, seen)));
  return row(`${circuit.a.rack} ${circuit.one_way ? "→" : "–"} ${circuit.b.rack}`, isDead ? el("span", { className: "bad" }, `✗ ${circuit.plane}`) : circuit.plane, el("span", {}, meter, ` ${Math.round(100 * share)}%`), button);
}

// Whoever has chosen none follows the latest.
function renderReconfigurations() {
  const words = (one) => `${clock(one.created_unix_s)} ${one.trigger}: ${one.state}`;
  options(by("reconfiguration"), [["", "the latest"], ...seen.reconfigurations.map((one) => [one.id, words(one)])]);
  renderReconfiguration();
}

function renderReconfiguration() {
  const one = seen.reconfigurations.find((other) => other.id === by("reconfiguration").value) ?? seen.reconfigurations[0];
  if (one === undefined) {
    by("reconfiguration-facts").textContent = "None since the controller was started.";
    by("timeline").replaceChildren();
    return;
  }
  const failed = one.failures.map((failure) => `${describe(failure.circuit)}: ${failure.reason}`);
  const isOver = OVER.has(one.state);
  const done = isOver ? [`${count(one.connected.length, "circuit")} up, ${one.disconnected.length} down`, count(one.rules_pushed, "rule")] : [];
  const of = one.stages_expected === null ? "" : ` of about ${one.stages_expected}`;
  const stages = one.stages_expected === 1 ? [] : [`${one.stages_done}${of} stages made${one.paused ? ", paused" : ""}`];
  const facts = [`${one.id}: ${one.state}`, ...stages, ...done, told(one.reason), ...failed.map(told)];
  by("reconfiguration-facts").textContent = facts.filter(Boolean).join(" · ");
  by("timeline").replaceChildren(gantt(one, isOver));
}

function renderDevices() {
  const away = seen.devices.filter((one) => !one.connected);
  const mute = seen.devices.filter((one) => one.connected && !one.answers);
  const complaints = seen.devices.reduce((sum, one) => sum + one.alarms.length, 0);
  const answering = away.length ? `${away.length} of ${seen.devices.length} are not connected` : `All ${seen.devices.length} are connected`;
  const silent = mute.length ? `, and ${mute.length} do not answer` : "";
  by("device-summary").textContent = `${answering}${silent}; ${complaints ? count(complaints, "alarm") : "no alarms"}.`;
  const others = seen.devices.filter((one) => one.connected && one.answers && one.kind !== "vswitch");
  const listed = [...away, ...mute, ...others.sort((a, b) => b.alarms.length - a.alarms.length)];
  const shown = listed.slice(0, MOST_DEVICES);
  rows(by("devices"), shown.map((one) => row(one.name, one.kind, one.connected && one.answers
    ? el("div", {}, el("span", { className: "good" }, `✓ ${one.detail || "connected"}`), ...alarms(one))
    : el("span", { className: "bad" }, `✗ ${one.detail || "not connected"}`))), "No devices.");
  by("devices-more").textContent = listed.length > shown.length ? `and ${listed.length - shown.length} more: hydra devices` : "";
  keepFocus(by("quarantine"), () => rows(by("quarantine"), seen.quarantine.map(quarantineRow), "No port is in quarantine."));
}

// The ports that circuits show; others may be typed.
function offerPorts() {
  const rack = by("aside-rack").value.trim();
  const ends = seen.topology.circuits.flatMap((one) => [one.a, one.b]);
  const ports = ends.filter((end) => end.rack === rack).map((end) => end.port);
  by("ports").replaceChildren(...[...new Set(ports)].map((value) => el("option", { value })));
}

function alarms(device) {
  return device.alarms.map((one) => el("div", { className: "bad" }, `▲ ${one.severity} ${one.code}${one.port === null ? "" : ` at port ${one.port}`}: ${one.text}`));
}

function quarantineRow(port) {
  const button = el("button", { type: "button", hidden: !operates() }, "clear…");
  button.dataset.key = `${port.rack} ${port.port}`;
  button.setAttribute("aria-label", `Clear ${port.rack} ${port.port}`);
  button.addEventListener("click", () => act(() => actions.clearQuarantine(port)));
  const until = port.on_trial ? "on trial" : port.until_unix_s === null ? "until it is cleared" : `until ${clock(port.until_unix_s)}`;
  return row(`${port.rack} ${port.port}`, port.plane, `${port.reason} (${until})`, button);
}

const act = (action) => actions.act(action, soon, fail);

const operates = () => who.role === "operator";

// What the page is depends on who looks; nobody is shown a button that would be refused.
async function begin() {
  try {
    who = await get("/v1/whoami");
  } catch (error) {
    stale = true;
    fail(error);
    if (!(error instanceof Refused && error.status === 401)) setTimeout(begin, PAUSE_MS);
    return;
  }
  by("error").hidden = true;
  by("who").textContent = `${who.name}, ${who.role}`;
  by("name").textContent = "";
  for (const one of document.querySelectorAll(".operators")) one.hidden = !operates();
  by("policy").hidden = !["viewer", "operator"].includes(who.role);
  if (who.role === "agent") {
    by("summary").textContent = "Agents report by their token; there is nothing here for them to see.";
    return;
  }
  if (who.role === "tenant") tenant.begin(act);
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

// A stream ends with its token, and with its role: whoever is another one now has another page.
async function become() {
  const now = await get("/v1/whoami").catch(() => who);
  if (now.name !== who.name || now.role !== who.role) location.reload();
}

by("plan").addEventListener("click", () => act(actions.plan));
by("policy").addEventListener("click", () => act(() => actions.policy(operates())));
by("aside").addEventListener("submit", (event) => {
  event.preventDefault();
  act(() => actions.setAside(by("aside-rack").value.trim(), by("aside-port").value.trim()));
});
by("aside-rack").addEventListener("input", offerPorts);
by("plane").addEventListener("change", renderFabric);
by("rack").addEventListener("input", renderFabric);
by("reconfiguration").addEventListener("change", renderReconfiguration);
by("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("token").value.trim();
  by("token").value = "";
  by("wrong-token").hidden = mayBeToken(text);
  if (!mayBeToken(text)) return;
  signIn(text);
  by("sign-in").close();
  if (who === null) begin();
  else location.reload(); // as whoever it is now
});
by("sign-in").addEventListener("close", () => {
  if (token() === null) by("sign-in").showModal(); // without one there is nothing to see
});
heat.listen(by("heat"), tellOfPair);
setInterval(age, 1000);
const redraw = () => {
  if (seen.topology === undefined) return;
  renderFabric();
  heat.draw(by("heat"));
};
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
begin();
