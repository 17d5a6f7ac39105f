// Racks on a ring, circuits as chords, arrows where they are one-way. Planes differ by dash as well
// as by colour (Okabe and Ito).

import { colour, surface } from "./dom.js";

const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5]];
const LABEL_PX = 15;
const HEAD_PX = 9;

export const style = (index) => ({
  colour: COLOURS[index % COLOURS.length],
  dash: DASHES[index % DASHES.length],
});

export function load(circuit) {
  return Math.max(circuit.a_to_b_mbps ?? 0, circuit.b_to_a_mbps ?? 0) / circuit.rate_mbps;
}

// The head of an arrow that comes from `bend` and ends `gap` before the middle of a rack.
function head(pen, bend, to, gap, length) {
  const angle = Math.atan2(to.y - bend[1], to.x - bend[0]);
  pen.save();
  pen.translate(to.x, to.y);
  pen.rotate(angle);
  pen.fillStyle = pen.strokeStyle;
  pen.beginPath();
  pen.moveTo(-gap + 1, 0);
  pen.lineTo(-gap - length, -length / 2);
  pen.lineTo(-gap - length, length / 2);
  pen.fill();
  pen.restore();
}

export function draw(canvas, topology, circuits, chosen) {
  const { pen, width, height } = surface(canvas);
  const middle = [width / 2, height / 2];
  const radius = Math.max(40, Math.min(width, height) / 2 - 44);
  const racks = topology.racks;
  const at = new Map(racks.map((rack, index) => {
    const angle = (2 * Math.PI * index) / racks.length - Math.PI / 2;
    return [rack, { angle, x: middle[0] + radius * Math.cos(angle), y: middle[1] + radius * Math.sin(angle) }];
  }));
  const planes = new Map(topology.planes.map((plane, index) => [plane.name, index]));
  const beside = new Map();
  const single = new Set(circuits.map((one) => one.plane)).size < 2; // then a dash says nothing
  const scale = Math.min(1, Math.max(0.2, 40 / circuits.length));
  const dot = racks.length > 64 ? 2 : 5;
  for (const circuit of circuits) {
    const { colour: stroke, dash } = style(planes.get(circuit.plane));
    const pair = [circuit.a.rack, circuit.b.rack].sort().join(" ");
    const before = beside.get(pair) ?? 0;
    beside.set(pair, before + 1);
    const [from, to] = [at.get(circuit.a.rack), at.get(circuit.b.rack)];
    pen.strokeStyle = stroke;
    pen.setLineDash(single ? [] : dash);
    pen.lineWidth = 0.6 + scale * (0.6 + 4 * Math.min(1, load(circuit)));
    pen.globalAlpha = circuits.length > 400 ? 0.35 : 0.9;
    const pull = 0.25 + 0.12 * before; // parallel circuits lie beside each other
    const bend = [0, 1].map((k) => {
      const half = k ? (from.y + to.y) / 2 : (from.x + to.x) / 2;
      return half + (middle[k] - half) * pull;
    });
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.quadraticCurveTo(bend[0], bend[1], to.x, to.y);
    pen.stroke();
    if (circuit.one_way) head(pen, bend, to, dot + pen.lineWidth, HEAD_PX * Math.max(0.5, scale));
  }
  pen.globalAlpha = 1;
  pen.setLineDash([]);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil((racks.length * LABEL_PX) / (2 * Math.PI * radius)));
  racks.forEach((rack, index) => {
    const { angle, x, y } = at.get(rack);
    pen.fillStyle = rack === chosen ? colour("--accent") : colour("--ink");
    pen.beginPath();
    pen.arc(x, y, rack === chosen ? 6 : dot, 0, 2 * Math.PI);
    pen.fill();
    if (index % every && rack !== chosen) return;
    pen.save();
    pen.translate(x, y);
    const left = Math.cos(angle) < -1e-9;
    pen.rotate(left ? angle + Math.PI : angle);
    pen.textAlign = left ? "right" : "left";
    pen.fillText(rack, left ? -10 : 10, 0);
    pen.restore();
  });
}
