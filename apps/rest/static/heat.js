// Demand as a heat map. The scale is that of cividis (Nuñez, Anderton, Renslow 2018), which reads
// the same for all kinds of colour vision and in grey.

import { by, colour, mbps, say as put, surface } from "./dom.js";

const STOPS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
// Pairs among many idle ones are drawn at least so large, the busiest on top.
const LEAST_PX = 4;
const MOST_SPOTS = 20_000;
let shown = null;
let cell = null;

function shade(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (STOPS.length - 1);
  const low = Math.floor(place);
  return STOPS[low].map((from, k) => Math.round(from + (STOPS[low + 1][k] - from) * (place - low)));
}

// Few pairs have most of the demand: the square root leaves the others visible.
const share = (rate, most) => (most > 0 ? Math.sqrt(rate / most) : 0);

export function update(canvas, topology, demand) {
  const index = new Map(topology.racks.map((rack, place) => [rack, place]));
  const many = topology.racks.length;
  const rates = new Float64Array(many * many);
  const entries = new Map();
  for (const entry of demand.entries) {
    const at = index.get(entry.src) * many + index.get(entry.dst);
    rates[at] = entry.rate_mbps;
    entries.set(at, entry);
  }
  const paths = new Set(topology.paths.flatMap(({ src, dst, one_way }) => (one_way ? [`${src} ${dst}`] : [`${src} ${dst}`, `${dst} ${src}`])));
  const most = demand.entries.reduce((top, entry) => Math.max(top, entry.rate_mbps), 0);
  const busy = [...entries.keys()].sort((a, b) => rates[a] - rates[b]);
  shown = { racks: topology.racks, many, rates, entries, paths, most, busy, basis: demand.basis, prediction: demand.prediction };
  if (cell !== null && Math.max(...cell) >= many) cell = null; // a controller that came back has fewer
  by("heat-most").textContent = `${mbps(most)} Mb/s`;
  draw(canvas);
  say();
}

export function draw(canvas) {
  if (shown === null) return;
  const { racks, many, rates, entries, paths, most, busy } = shown;
  const image = new ImageData(many, many);
  for (let place = 0; place < many * many; place += 1) {
    image.data.set([...shade(share(rates[place], most)), 255], 4 * place);
  }
  const small = new OffscreenCanvas(many, many);
  small.getContext("2d").putImageData(image, 0, 0);
  const { pen, width } = surface(canvas);
  const edge = 46;
  const size = (width - edge) / many;
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, edge, edge, width - edge, width - edge);
  if (size < LEAST_PX && busy.length <= MOST_SPOTS) {
    for (const at of busy) {
      pen.fillStyle = `rgb(${shade(share(rates[at], most)).join(" ")})`;
      pen.fillRect(edge + ((at % many) + 0.5) * size - LEAST_PX / 2, edge + (Math.floor(at / many) + 0.5) * size - LEAST_PX / 2, LEAST_PX, LEAST_PX);
    }
  }
  // A pair that something full holds back has a corner cut off: it wants more than is shown.
  if (size >= 6) {
    pen.fillStyle = colour("--bad");
    for (const [at, entry] of entries) {
      if (!entry.constrained) continue;
      const [right, top] = [edge + ((at % many) + 1) * size, edge + Math.floor(at / many) * size];
      pen.beginPath();
      pen.moveTo(right - size / 3, top);
      pen.lineTo(right, top);
      pen.lineTo(right, top + size / 3);
      pen.fill();
    }
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2;
    for (let at = 0; at < many * many; at += 1) {
      const [from, to] = [Math.floor(at / many), at % many];
      if (!paths.has(`${racks[from]} ${racks[to]}`)) continue;
      pen.strokeRect(edge + to * size + 2, edge + from * size + 2, size - 4, size - 4);
    }
  }
  pen.fillStyle = colour("--ink");
  pen.font = "11px system-ui, sans-serif";
  const every = Math.max(1, Math.ceil(14 / size));
  for (let at = 0; at < many; at += every) {
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText(racks[at], edge - 4, edge + (at + 0.5) * size);
    pen.save();
    pen.translate(edge + (at + 0.5) * size, edge - 4);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(racks[at], 0, 0);
    pen.restore();
  }
  if (cell !== null) {
    pen.strokeStyle = colour("--bad");
    pen.lineWidth = 3;
    const box = Math.max(size, 6);
    pen.strokeRect(edge + cell[1] * size - (box - size) / 2, edge + cell[0] * size - (box - size) / 2, box, box);
  }
  scale();
}

function scale() {
  const { pen, width, height } = surface(by("heat-scale"));
  for (let x = 0; x < width; x += 1) {
    pen.fillStyle = `rgb(${shade(Math.sqrt(x / width)).join(" ")})`;
    pen.fillRect(x, 0, 1.5, height);
  }
}

function wish(entry) {
  if (!entry?.estimated_mbps) return "";
  const estimated = entry.constrained ? "constrained, wants perhaps" : "measured, wants";
  const how = { estimate: estimated, rate: "as sent, wants", backlog: "for what waits, wants" }[shown.basis];
  const foretold = shown.prediction === "last" ? "" : `, ${shown.prediction} foretells ${mbps(entry.planned_mbps)} Mb/s`;
  const [wants, expected] = [mbps(entry.estimated_mbps), mbps(entry.expected_mbps ?? entry.estimated_mbps)];
  const counted = expected === wants ? "" : `, plans count on ${expected} Mb/s`;
  return `; ${how} ${wants} Mb/s${counted}${foretold}`;
}

function say() {
  if (cell === null || shown === null) return;
  const [src, dst] = [shown.racks[cell[0]], shown.racks[cell[1]]];
  const at = cell[0] * shown.many + cell[1];
  const way = shown.paths.has(`${src} ${dst}`) ? "by circuits" : "electrically";
  put(by("heat-cell"), `${src} to ${dst}: ${mbps(shown.rates[at])} Mb/s, ${way}${wish(shown.entries.get(at))}`);
}

// `open` is called with the pair that is chosen by a click or by Enter.
export function listen(canvas, open) {
  const choose = (from, to) => {
    if (shown === null) return;
    const clamp = (value) => Math.min(shown.many - 1, Math.max(0, value));
    cell = [clamp(from), clamp(to)];
    draw(canvas);
    say();
  };
  canvas.addEventListener("pointermove", (event) => {
    if (shown === null) return;
    const box = canvas.getBoundingClientRect();
    const size = (box.width - 46) / shown.many;
    choose(Math.floor((event.clientY - box.top - 46) / size), Math.floor((event.clientX - box.left - 46) / size));
  });
  const ask = () => {
    if (shown !== null && cell !== null && cell[0] !== cell[1]) open(shown.racks[cell[0]], shown.racks[cell[1]]);
  };
  canvas.addEventListener("click", ask);
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter") return ask();
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const [from, to] = cell ?? [0, -1];
    choose(from + step[0], to + step[1]);
  });
}
