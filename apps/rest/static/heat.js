// Demand as a heat map. The colour scale is cividis (Nuñez, Anderton, Renslow 2018), which looks the same for
// all kinds of colour vision and in grey. The scale begins close to the background, which stands for 0.

import { LEAST_MBPS, by, colour, el, mbps, say as put, surface, svg } from "./dom.js";

const CIVIDIS = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
const [LEAST_CELL_PX, MOST_CELL_PX] = [28, 48]; // smaller only if the racks do not fit
const NUMBERED_RACKS = 16;
const SIGNED_PX = 6; // cells below this size have no frame, corner or grid
// Pairs among many idle pairs are drawn at least this large, the busiest on top.
const LEAST_PX = 4;
const MOST_SPOTS = 20_000;
const FONT = "11px system-ui, sans-serif";
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
let shown = null;
let cell = null;
let grid = { edge: 0, size: 1 }; // of the last drawing
let picture = null; // canvas context and size of the last drawing
let still = null; // a copy of the last drawing without the chosen cell

const isDark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;

// The colour of a share of the highest rate: close to the background for a small share.
function shade(share, stops) {
  const place = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
  const low = Math.floor(place);
  return stops[low].map((from, k) => Math.round(from + (stops[low + 1][k] - from) * (place - low)));
}

const stops = () => (isDark() ? CIVIDIS : CIVIDIS.toReversed());
const rgb = (parts) => `rgb(${parts.join(" ")})`;
const isBright = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140;

// Few pairs have most of the demand: by the square root, the other pairs stay visible.
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
  const busy = [...entries.keys()].filter((at) => rates[at] >= LEAST_MBPS).sort((a, b) => rates[a] - rates[b]);
  shown = { racks: topology.racks, many, rates, entries, paths, most, busy, basis: demand.basis, prediction: demand.prediction };
  if (cell !== null && Math.max(...cell) >= many) cell = null; // a restarted controller may have fewer racks
  by("heat-most").textContent = `${mbps(most)} Mb/s`;
  draw(canvas);
  say();
}

// Sets the canvas' size; cells have 28 to 48 px as long as all racks fit.
function lay(canvas) {
  const { racks, many } = shown;
  const pen = canvas.getContext("2d");
  pen.font = FONT;
  const edge = Math.ceil(Math.max(0, ...racks.map((rack) => pen.measureText(rack).width))) + 10;
  const { paddingLeft, paddingRight } = getComputedStyle(canvas.parentElement);
  const room = canvas.parentElement.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - edge - 1;
  const size = Math.min(MOST_CELL_PX, room / many);
  grid = { edge, size: size >= LEAST_CELL_PX ? Math.floor(size) : size };
  canvas.style.width = canvas.style.height = `${edge + many * grid.size + 1}px`;
}

function drawPairs(pen, scale) {
  const { many, rates, most, busy } = shown;
  const { edge, size } = grid;
  const spot = size < LEAST_PX && busy.length <= MOST_SPOTS ? LEAST_PX : size;
  for (const at of busy) {
    pen.fillStyle = rgb(shade(share(rates[at], most), scale));
    pen.fillRect(edge + ((at % many) + 0.5) * size - spot / 2, edge + (Math.floor(at / many) + 0.5) * size - spot / 2, spot, spot);
  }
}

function drawGrid(pen) {
  const { many } = shown;
  const { edge, size } = grid;
  pen.fillStyle = colour("--line");
  for (let at = 0; at < many; at += 1) pen.fillRect(edge + at * size, edge + at * size, size, size);
  pen.strokeStyle = colour("--line");
  pen.lineWidth = 1;
  if (size < SIGNED_PX) return pen.strokeRect(edge, edge, many * size, many * size);
  pen.beginPath();
  for (let at = 0; at <= many; at += 1) {
    pen.moveTo(edge, edge + at * size);
    pen.lineTo(edge + many * size, edge + at * size);
    pen.moveTo(edge + at * size, edge);
    pen.lineTo(edge + at * size, edge + many * size);
  }
  pen.stroke();
}

// The sign of a pair constrained by a full resource: a corner cut off by a line.
function corner(pen, right, top, side) {
  pen.fillStyle = colour("--card");
  pen.strokeStyle = colour("--ink");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(right - side, top);
  pen.lineTo(right, top);
  pen.lineTo(right, top + side);
  pen.closePath();
  pen.fill();
  pen.stroke();
}

function drawSigns(pen, scale) {
  const { racks, many, rates, entries, paths, most } = shown;
  const { edge, size } = grid;
  for (let at = 0; at < many * many; at += 1) {
    const [from, to] = [Math.floor(at / many), at % many];
    const [left, top] = [edge + to * size, edge + from * size];
    if (paths.has(`${racks[from]} ${racks[to]}`)) {
      pen.strokeStyle = colour("--ink");
      pen.lineWidth = 2;
      pen.strokeRect(left + 2, top + 2, size - 4, size - 4);
    }
    if (entries.get(at)?.constrained) corner(pen, left + size - 1, top + 1, size / 3);
    if (many > NUMBERED_RACKS || size < LEAST_CELL_PX || rates[at] < LEAST_MBPS) continue;
    pen.fillStyle = isBright(shade(share(rates[at], most), scale)) ? "#000" : "#fff";
    pen.font = FONT;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(rates[at] < 100 ? mbps(rates[at]) : COMPACT.format(rates[at]), left + size / 2, top + size * 0.6);
  }
}

function drawLabels(pen) {
  const { racks } = shown;
  const { edge, size } = grid;
  const upright = edge - 10 <= size - 4;
  const every = Math.max(1, Math.ceil(14 / size));
  pen.fillStyle = colour("--ink");
  pen.font = FONT;
  pen.textBaseline = "middle";
  for (let at = 0; at < racks.length; at += every) {
    pen.textAlign = "right";
    pen.fillText(racks[at], edge - 4, edge + (at + 0.5) * size);
    pen.save();
    pen.translate(edge + (at + 0.5) * size, edge - (upright ? 10 : 4));
    if (!upright) pen.rotate(-Math.PI / 2);
    pen.textAlign = upright ? "center" : "left";
    pen.fillText(racks[at], 0, 0);
    pen.restore();
  }
}

function drawChosen(pen) {
  if (cell === null) return;
  const { edge, size } = grid;
  const box = Math.max(size, 6);
  pen.strokeStyle = colour("--accent");
  pen.lineWidth = 3;
  pen.strokeRect(edge + cell[1] * size - (box - size) / 2, edge + cell[0] * size - (box - size) / 2, box, box);
}

export function draw(canvas) {
  if (shown === null) return;
  lay(canvas);
  const { pen, width, height } = surface(canvas);
  if (width === 0) return; // the page is hidden
  const scale = stops();
  drawGrid(pen);
  drawPairs(pen, scale);
  if (grid.size >= SIGNED_PX) drawSigns(pen, scale);
  drawLabels(pen);
  still = new OffscreenCanvas(canvas.width, canvas.height);
  still.getContext("2d").drawImage(canvas, 0, 0);
  picture = { pen, width, height };
  drawChosen(pen);
  drawScale(scale);
}

// Draws another chosen cell; the rest stays unchanged, for any number of pairs.
function redrawChosen() {
  if (still === null) return;
  const { pen, width, height } = picture;
  pen.clearRect(0, 0, width, height);
  pen.drawImage(still, 0, 0, width, height);
  drawChosen(pen);
}

function drawScale(scale) {
  const { pen, width, height } = surface(by("heat-scale"));
  for (let x = 0; x < width; x += 1) {
    pen.fillStyle = rgb(shade(Math.sqrt(x / width), scale));
    pen.fillRect(x, 0, 1.5, height);
  }
}

// Signs of pairs in words; cells too small for signs have none.
export function renderLegend(place) {
  if (grid.size < SIGNED_PX) return put(place);
  const sign = (...parts) => svg("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("path", { d: "M1 1H13V13H1Z", class: "cell" }), ...parts);
  put(place,
    el("li", {}, sign(svg("path", { d: "M3 3H11V11H3Z", class: "frame" })), "has a path of circuits"),
    el("li", {}, sign(svg("path", { d: "M5 1H13V9Z", class: "corner" })), "held back by something full"),
    el("li", {}, svg("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("path", { d: "M1 1H13V13H1Z", class: "self" })), "within a rack: not measured"));
}

function wish(entry) {
  if (!entry?.estimated_mbps) return "";
  const estimated = entry.constrained ? "constrained, wants perhaps" : "measured, wants";
  const how = { estimate: estimated, rate: "as sent, wants", backlog: "for waiting traffic, wants" }[shown.basis];
  const foretold = shown.prediction === "last" ? "" : `, ${shown.prediction} foretells ${mbps(entry.planned_mbps)} Mb/s`;
  const [wants, expected] = [mbps(entry.estimated_mbps), mbps(entry.expected_mbps)];
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

// `open` is called with the pair chosen by a click or by Enter.
export function listen(canvas, open) {
  const choose = (from, to) => {
    if (shown === null) return;
    const clamp = (value) => Math.min(shown.many - 1, Math.max(0, value));
    cell = [clamp(from), clamp(to)];
    redrawChosen();
    say();
  };
  const pointed = (event) => [event.offsetY, event.offsetX].map((place) => Math.floor((place - grid.edge) / grid.size));
  canvas.addEventListener("pointermove", (event) => choose(...pointed(event)));
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
