// An operator's actions on the page: each action asks first, and shows the expected outcome.

import { get, isUnknown, send } from "./api.js";
import { by, count, el, mbps, open } from "./dom.js";
import { clock, told } from "./times.js";
import { along, describe, uses } from "./why.js";

const MOST_LINES = 12;
const ASKING = "Asking the controller…";

// Resolves to the choice: "yes", or the value of one of `others`, each [value, words]; false without a
// choice. Without `yes` there is nothing to agree to. An action that can't be undone is `isFinal`, and red.
export function ask(title, text, yes, { isFinal = false, others = [] } = {}) {
  const dialog = by("ask");
  by("asking").textContent = "";
  by("ask-title").textContent = title;
  by("ask-text").replaceChildren(...text);
  by("ask-yes").textContent = yes;
  by("ask-yes").hidden = yes === "";
  by("ask-yes").className = isFinal ? "danger" : "primary";
  by("ask-others").replaceChildren(...others.map(([value, words]) => el("button", { value }, words)));
  by("ask-no").onclick = () => dialog.close("no");
  dialog.returnValue = "";
  open(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const chosen = ["", "no"].includes(dialog.returnValue) ? false : dialog.returnValue;
      if (chosen) by("asking").textContent = ASKING;
      resolve(chosen);
    }, { once: true });
  });
}

let acting = false;

// Carries out a button's action, one at a time. If the button were pressed twice, or another button before
// the answer to the first, one answer would agree to both actions.
export async function act(action, after, failed) {
  if (acting) return;
  acting = true;
  by("asking").textContent = ASKING;
  try {
    if (await action()) after();
  } catch (error) {
    failed(error);
  }
  acting = false;
  by("asking").textContent = "";
}

export const UNANSWERED = "The controller has not answered.";

// The result of a dry run, or null; the dialog shows a refusal.
async function seen(title, request) {
  try {
    return await request();
  } catch (error) {
    await ask(title, [el("p", {}, isUnknown(error) ? UNANSWERED : told(error.message))], "");
    return null;
  }
}

// True if the action may have been carried out; the dialog shows a refusal, and a missing reply.
export async function done(title, request) {
  try {
    await request();
    return true;
  } catch (error) {
    const isLost = isUnknown(error);
    await ask(isLost ? "Not known" : title, [el("p", {}, isLost ? `${UNANSWERED} The outcome is unknown: check the present state before you try again.` : told(error.message))], "");
    return isLost;
  }
}

const list = (lines) => el("ul", {},
  ...lines.slice(0, MOST_LINES).map((line) => el("li", {}, line)),
  ...(lines.length > MOST_LINES ? [el("li", {}, `and ${lines.length - MOST_LINES} more`)] : []));

// Missing devices that the result of a dry run needs.
export const risks = (dry) => (dry.at_risk.length ? [el("p", { className: "bad" }, "▲ At risk, as devices are missing:"), list(dry.at_risk.map(told))] : []);

// An entry of the demand to plan for; for a guess, with the expected demand, as in the controller's own
// plans.
function wanted({ src, dst, planned_mbps: planned, estimated_mbps: estimated, expected_mbps: expected }) {
  return { src, dst, mbps: planned, ...(expected === estimated ? {} : { expected_mbps: planned * (expected / estimated) }) };
}

function onCircuits(shares) {
  if (shares === null) return "";
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const most = shares.served_share_bound === null ? "" : `, and no plan can serve more than ${percent(shares.served_share_bound)} so`;
  return ` Circuits alone would serve ${percent(shares.served_share)}${most}.`;
}

// The change is planned for the demand shown to the user, and from the state in which the dry run began.
export async function plan() {
  const { entries } = await get("/v1/demand");
  const demand = entries.map(wanted);
  const body = demand.length ? { demand } : {};
  for (;;) {
    const dry = await seen("No plan", () => send("POST", "/v1/plan", body));
    if (dry === null) return false;
    const lines = [...dry.connect.map((one) => `up: ${describe(one)}`), ...dry.disconnect.map((one) => `down: ${describe(one)}`)];
    const text = [
      el("p", {}, `For the demand as measured: ${mbps(dry.served_mbps)} of ${mbps(dry.demand_mbps)} Mb/s would be served.${onCircuits(dry.on_circuits)} ${dry.verdict.pays ? "It pays" : "It does not pay"}: ${dry.verdict.reason}.`),
      el("p", {}, `${count(dry.connect.length, "circuit")} up, ${dry.disconnect.length} down, ${count(dry.retagged_ports, "port")}, ${count(dry.rules, "rule")}. ${count(dry.diverted_pairs.length, "rack pair")} without circuits meanwhile.`),
      ...risks(dry),
      list(lines),
    ];
    if (!(await ask("Dry run", text, lines.length ? "Carry out plan" : ""))) return false;
    if ((await get("/v1/topology")).epoch === dry.current_epoch) break; // else: ask again
  }
  return done("Not carried out", () => send("POST", "/v1/reconfigurations", body));
}

const place = (rack, port) => `/v1/quarantine/${encodeURIComponent(rack)}/${encodeURIComponent(port)}`;

export async function clearQuarantine({ rack, port, since_unix_s: since, reason }) {
  const text = `In quarantine since ${clock(since)}: ${reason}. Planning may use the port again at once; no circuit changes now.`;
  if (!(await ask(`Clear ${rack} ${port}?`, [el("p", {}, text)], "Clear port"))) return false;
  return done("Not cleared", () => send("DELETE", place(rack, port)));
}

const touches = (circuit, rack, port) => [circuit.a, circuit.b].some((end) => end.rack === rack && end.port === port);

export async function setAside(rack, port) {
  const { circuits, paths } = await get("/v1/topology");
  const standing = circuits.filter((one) => touches(one, rack, port)); // two if circuits are one-way
  const text = standing.flatMap((circuit) => [
    `${describe(circuit)} stands on the port and stays until the next change, which avoids the port.`,
    ...paths.filter((path) => uses(path, circuit)).map((path) => `The circuit carries ${along(path)}.`),
  ]);
  if (text.length === 0) text.push("No circuit stands on the port.");
  const reason = el("input", { required: true, maxLength: 200 });
  const form = el("label", {}, "Why? ", reason);
  const parts = [el("p", {}, "No plan uses the port until the port is cleared; no circuit changes now."), list(text), form];
  if (!(await ask(`Set ${rack} ${port} aside?`, parts, "Set port aside"))) return false;
  const body = { reason: reason.value.trim() || "set aside on the dashboard" };
  return done("Not set aside", () => send("PUT", place(rack, port), body));
}
