// Devices with their alarms, and the ports in quarantine.

import * as actions from "./actions.js";
import { by, count, el, keepFocus, row, rows, whole } from "./dom.js";
import { operates, seen } from "./state.js";
import { at, told } from "./times.js";

const MOST_DEVICES = 100;

const alarms = (device) => device.alarms.map((alarm) => el("div", { className: "bad" }, `▲ ${alarm.severity} ${alarm.code}${alarm.port === null ? "" : ` at port ${alarm.port}`}: ${alarm.text}`));

const deviceRow = (device) => row(device.name, device.kind, device.connected && device.answers
  ? el("div", {}, el("span", { className: "good" }, `✓ ${device.detail || "connected"}`), ...alarms(device))
  : el("span", { className: "bad" }, `✗ ${device.detail || "not connected"}`));

function quarantineRow(port, act) {
  const button = el("button", { type: "button", hidden: !operates() }, "clear…");
  button.dataset.key = `${port.rack} ${port.port}`;
  button.setAttribute("aria-label", `Clear ${port.rack} ${port.port}`);
  button.addEventListener("click", () => act(() => actions.clearQuarantine(port)));
  const until = port.on_trial ? ["on trial"] : port.until_unix_s === null ? ["until cleared"] : ["until ", at(port.until_unix_s)];
  return row(`${port.rack} ${port.port}`, port.plane, el("span", {}, `${told(port.reason)} (`, ...until, ")"), button);
}

export function render(act) {
  const { devices, quarantine } = seen;
  const away = devices.filter((device) => !device.connected);
  const mute = devices.filter((device) => device.connected && !device.answers);
  const complaints = devices.reduce((sum, device) => sum + device.alarms.length, 0);
  const answering = away.length ? `${whole(away.length)} of ${whole(devices.length)} are not connected` : `All ${whole(devices.length)} are connected`;
  const silent = mute.length ? `, and ${mute.length} do not answer` : "";
  by("device-summary").textContent = `${answering}${silent}; ${complaints ? count(complaints, "alarm") : "no alarms"}.`;
  const others = devices.filter((device) => device.connected && device.answers && device.kind !== "vswitch");
  const listed = [...away, ...mute, ...others.sort((a, b) => b.alarms.length - a.alarms.length)];
  const shown = listed.slice(0, MOST_DEVICES);
  rows(by("devices"), shown.map(deviceRow), "No devices.");
  by("devices-more").textContent = listed.length > shown.length ? `and ${whole(listed.length - shown.length)} more: hydra devices` : "";
  keepFocus(by("quarantine"), () => rows(by("quarantine"), quarantine.map((port) => quarantineRow(port, act)), "No port is in quarantine."));
}

// The ports of shown circuits; the user may type other ports.
function offerPorts() {
  const rack = by("aside-rack").value.trim();
  const ends = seen.topology.circuits.flatMap((circuit) => [circuit.a, circuit.b]);
  const ports = ends.filter((end) => end.rack === rack).map((end) => end.port);
  by("ports").replaceChildren(...[...new Set(ports)].map((value) => el("option", { value })));
}

export function listen(act) {
  by("aside-rack").addEventListener("input", offerPorts);
  by("aside").addEventListener("submit", (event) => {
    event.preventDefault();
    act(() => actions.setAside(by("aside-rack").value.trim(), by("aside-port").value.trim()));
  });
}
