// Racks on a ring, circuits as chords, with arrows if circuits are one-way. Planes differ by dash as well as
// by colour (Okabe and Ito); the width is the load. Circuits that a change sets up have a plus; circuits that
// a change takes down are dotted, with a cross.

import { colour, surface } from "./dom.js";

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
const HEAD_PX = 9;
const NEAR_PX = 8; // from the pointer
const STEPS = 16; // points of a chord compared with the pointer
const TRANSITION_MS = 300;
const MOST_MOVING = 600; // circuits; a larger number is drawn at once, without a transition
const FONT = "12px system-ui, sans-serif";
let scene = null;
let focused = null; // the key of the circuit at the pointer

export const style = (index) => ({
  colour: COLOURS[index % COLOURS.length],
  dash: DASHES[index % DASHES.length],
});

export const load = (circuit) => Math.max(circuit.a_to_b_mbps ?? 0, circuit.b_to_a_mbps ?? 0) / circuit.rate_mbps;
export const keyOf = ({ plane, a, b }) => [plane, a.rack, a.port, b.rack, b.port].join(" ");

// The width in px of a circuit with this load, in a picture of `many` circuits.
export function widthOf(share, many) {
  const scale = Math.min(1, Math.max(0.2, 40 / many));
  return 0.6 + scale * (0.9 + 6 * Math.min(1, share));
}

// Places of racks; labels stay upright, beside the ring.
function placeRacks(pen, racks, width, height) {
  pen.font = FONT;
  const label = Math.max(0, ...racks.map((rack) => pen.measureText(rack).width));
  const radius = Math.max(40, Math.min(width / 2 - label - 16, height / 2 - 28));
  return new Map(racks.map((rack, index) => {
    const angle = (2 * Math.PI * index) / racks.length - Math.PI / 2;
    return [rack, { angle, x: width / 2 + radius * Math.cos(angle), y: height / 2 + radius * Math.sin(angle) }];
  }));
}

function lineOf(circuit, places, beside, middle) {
  const [from, to] = [places.get(circuit.a.rack), places.get(circuit.b.rack)];
  const pull = 0.25 + 0.12 * beside; // parallel circuits lie beside each other
  const bend = ["x", "y"].map((axis, k) => {
    const half = (from[axis] + to[axis]) / 2;
    return half + (middle[k] - half) * pull;
  });
  return { from, to, bend };
}

// The point of a chord at `share` of its length.
function pointAt({ from, to, bend }, share) {
  const rest = 1 - share;
  return ["x", "y"].map((axis, k) => rest * rest * from[axis] + 2 * rest * share * bend[k] + share * share * to[axis]);
}

// Circuits as lines: [key, {circuit, mark, width, alpha, …}]; `mark` is "", "coming" or "going".
function arrange(circuits, change, places, middle) {
  const lines = new Map();
  const beside = new Map();
  const add = (circuit, mark) => {
    const pair = [circuit.a.rack, circuit.b.rack].sort().join(" ");
    const before = beside.get(pair) ?? 0;
    beside.set(pair, before + 1);
    const alpha = mark === "going" ? 0.6 : circuits.length > 400 ? 0.35 : 0.9;
    lines.set(keyOf(circuit), { circuit, mark, alpha, width: widthOf(mark === "going" ? 0 : load(circuit), circuits.length), ...lineOf(circuit, places, before, middle) });
  };
  for (const circuit of circuits) add(circuit, change.coming.has(keyOf(circuit)) ? "coming" : "");
  for (const circuit of change.going) add(circuit, "going");
  return lines;
}

function trace(pen, { from, bend, to }) {
  pen.beginPath();
  pen.moveTo(from.x, from.y);
  pen.quadraticCurveTo(bend[0], bend[1], to.x, to.y);
}

// The head of an arrow that ends `gap` before the middle of a rack.
function head(pen, { bend, to }, gap, length) {
  pen.save();
  pen.translate(to.x, to.y);
  pen.rotate(Math.atan2(to.y - bend[1], to.x - bend[0]));
  pen.fillStyle = pen.strokeStyle;
  pen.beginPath();
  pen.moveTo(-gap + 1, 0);
  pen.lineTo(-gap - length, -length / 2);
  pen.lineTo(-gap - length, length / 2);
  pen.fill();
  pen.restore();
}

// A plus or a cross on a disc, in the middle of a chord.
function sign(pen, line) {
  const [x, y] = pointAt(line, 0.5);
  pen.setLineDash([]);
  pen.fillStyle = colour("--card");
  pen.beginPath();
  pen.arc(x, y, 9, 0, 2 * Math.PI);
  pen.fill();
  pen.lineWidth = 1.5;
  pen.stroke();
  pen.fillStyle = colour("--ink");
  pen.font = "bold 14px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(line.mark === "coming" ? "+" : "×", x, y + 0.5);
}

function drawLine(pen, line) {
  const { colour: stroke, dash } = style(scene.planes.get(line.circuit.plane));
  pen.globalAlpha = line.alpha;
  pen.strokeStyle = stroke;
  pen.lineWidth = line.width;
  pen.setLineDash(line.mark === "going" ? [1, 5] : scene.isSinglePlane ? [] : dash); // with a single plane, a dash has no meaning
  trace(pen, line);
  pen.stroke();
  if (line.circuit.one_way) head(pen, line, scene.dot + line.width, HEAD_PX * Math.max(0.5, Math.min(1, 40 / scene.lines.size)));
  if (line.mark) sign(pen, line);
}

// A label that would cover another label is left out; the chosen rack's label comes first.
function drawRacks(pen) {
  const { places, chosen, dot } = scene;
  const taken = [];
  const inOrder = [...places].sort(([a], [b]) => (b === chosen) - (a === chosen));
  pen.font = FONT;
  for (const [rack, { angle, x, y }] of inOrder) {
    const [across, down] = [Math.cos(angle), Math.sin(angle)];
    pen.fillStyle = rack === chosen ? colour("--accent") : scene.ink;
    pen.beginPath();
    pen.arc(x, y, rack === chosen ? 6 : dot, 0, 2 * Math.PI);
    pen.fill();
    const wide = pen.measureText(rack).width;
    const middle = [x + across * (12 + wide / 2), y + down * 16];
    if (taken.some(([left, top, width]) => Math.abs(left - middle[0]) < (width + wide) / 2 + 4 && Math.abs(top - middle[1]) < 14)) continue;
    taken.push([...middle, wide]);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(rack, ...middle);
  }
}

function drawFocus(pen) {
  const line = scene.lines.get(focused);
  if (line === undefined) return;
  pen.globalAlpha = 1;
  pen.setLineDash([]);
  pen.strokeStyle = scene.ink;
  pen.lineWidth = line.width + 5;
  trace(pen, line);
  pen.stroke();
  drawLine(pen, { ...line, alpha: 1 });
  pen.globalAlpha = 1;
  pen.setLineDash([]);
}

// The picture at `share` of a transition from the last picture.
function paint(share) {
  const { pen, width, height, lines, before } = scene;
  pen.clearRect(0, 0, width, height);
  const mix = (from, to) => from + (to - from) * share;
  if (share < 1) {
    for (const [key, line] of before) if (!lines.has(key)) drawLine(pen, { ...line, mark: "", alpha: mix(line.alpha, 0) });
  }
  for (const [key, line] of lines) {
    const from = share < 1 ? before.get(key) ?? { alpha: 0, width: line.width } : line;
    drawLine(pen, { ...line, alpha: mix(from.alpha, line.alpha), width: mix(from.width, line.width) });
  }
  pen.globalAlpha = 1;
  pen.setLineDash([]);
  drawRacks(pen);
  scene.still = null;
}

function move(now) {
  const share = Math.min(1, (now - scene.began) / TRANSITION_MS);
  paint(share);
  if (share < 1) scene.frame = requestAnimationFrame(move);
  else refocus();
}

// Pointing at a circuit draws the circuit over a copy of the rest, for any number of circuits.
function refocus() {
  if (scene.still === null) {
    scene.still = new OffscreenCanvas(scene.canvas.width, scene.canvas.height);
    scene.still.getContext("2d").drawImage(scene.canvas, 0, 0);
  }
  scene.pen.clearRect(0, 0, scene.width, scene.height);
  scene.pen.drawImage(scene.still, 0, 0, scene.width, scene.height);
  drawFocus(scene.pen);
}

const isStill = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

// `change` has the keys of circuits `coming`, and the circuits `going`. The picture changes over 300 ms from
// an earlier picture with the same `view`.
export function draw(canvas, topology, circuits, chosen, change, view) {
  if (scene !== null) cancelAnimationFrame(scene.frame);
  if (canvas.clientWidth === 0) return; // the page is hidden
  const { pen, width, height } = surface(canvas);
  const places = placeRacks(pen, topology.racks, width, height);
  const lines = arrange(circuits, change, places, [width / 2, height / 2]);
  const moves = scene?.view === view && scene.width === width && lines.size <= MOST_MOVING && !isStill();
  scene = {
    canvas, pen, width, height, places, lines, chosen, view,
    before: moves ? scene.lines : lines,
    planes: new Map(topology.planes.map((plane, index) => [plane.name, index])),
    isSinglePlane: new Set(circuits.map((circuit) => circuit.plane)).size < 2,
    dot: topology.racks.length > 64 ? 2 : 5,
    ink: colour("--ink"),
    began: performance.now(),
    frame: 0,
    still: null,
  };
  canvas.dataset.moves = moves;
  if (moves) return move(scene.began);
  paint(1);
  refocus();
}

// The circuit with the nearest chord to a point, if any chord is near.
function nearest(x, y) {
  let [found, least] = [null, NEAR_PX];
  for (const [key, line] of scene.lines) {
    for (let step = 1; step < STEPS; step += 1) {
      const [px, py] = pointAt(line, step / STEPS);
      const [nx, ny] = pointAt(line, (step + 1) / STEPS);
      const along = Math.max(0, Math.min(1, ((x - px) * (nx - px) + (y - py) * (ny - py)) / ((nx - px) ** 2 + (ny - py) ** 2 || 1)));
      const distance = Math.hypot(x - px - along * (nx - px), y - py - along * (ny - py));
      if (distance < least) [found, least] = [key, distance];
    }
  }
  return found;
}

// `told` is called with the circuit at the pointer, or null; `open` with the circuit chosen by a click or by
// Enter. Arrow keys walk through all circuits.
export function listen(canvas, told, open) {
  const focus = (key) => {
    if (scene === null || key === focused) return;
    focused = key;
    refocus();
    canvas.classList.toggle("pointing", key !== null);
    told(scene.lines.get(key) ?? null);
  };
  let waiting = false;
  canvas.addEventListener("pointermove", (event) => {
    if (scene === null || waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      focus(nearest(event.offsetX, event.offsetY));
    });
  });
  canvas.addEventListener("pointerleave", () => focus(null));
  const choose = () => {
    const line = scene?.lines.get(focused);
    if (line !== undefined && line.mark !== "going") open(line.circuit);
  };
  canvas.addEventListener("click", (event) => {
    if (scene === null) return;
    focus(nearest(event.offsetX, event.offsetY));
    choose();
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") return choose();
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step === undefined || scene === null) return;
    event.preventDefault();
    const keys = [...scene.lines.keys()];
    const place = focused === null ? (step > 0 ? -1 : keys.length) : keys.indexOf(focused);
    focus(keys[Math.max(0, Math.min(keys.length - 1, place + step))] ?? null);
  });
}
