// Lines of samples over time, as paths of SVG.

import { svg } from "./dom.js";

export const HOUR_S = 3600;
const [WIDTH, HEIGHT, MARGIN] = [120, 28, 2];

// The hour before the last of `times`, `width` by `height`; the rate `top` takes the full height. The line is
// broken where samples are missing; a sample between two gaps is a dot.
export function line(times, samples, top, width, height) {
  const first = times.at(-1) - HOUR_S;
  let broken = true;
  return samples.map((rate, k) => {
    const before = broken;
    broken = rate === null;
    if (broken) return "";
    const at = `${(width * (times[k] - first) / HOUR_S).toFixed(1)} ${(height * (1 - rate / top)).toFixed(1)}`;
    return before ? `M${at}h0` : `L${at}`;
  }).join("");
}

const picture = (...parts) => svg("svg", { viewBox: `0 ${-MARGIN} ${WIDTH} ${HEIGHT + 2 * MARGIN}`, preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" }, ...parts);

// The last hour of a series, from 0 to `top` or the highest sample.
export function sparkline(times, samples, top = 0) {
  const most = Math.max(top, ...samples.map((sample) => sample ?? 0)) || 1;
  return picture(
    svg("path", { class: "base", d: `M0 ${HEIGHT}H${WIDTH}` }),
    svg("path", { class: "line", d: line(times, samples, most, WIDTH, HEIGHT) }));
}

// A bar for each of `events`, [time, height], in the hour before `now`.
export function bars(now, events) {
  const most = Math.max(0, ...events.map(([, size]) => size)) || 1;
  const stems = events.map(([unix, size]) => `M${(WIDTH * (1 - (now - unix) / HOUR_S)).toFixed(1)} ${HEIGHT}V${(HEIGHT * (1 - Math.max(0.08, size / most))).toFixed(1)}`);
  return picture(svg("path", { class: "base", d: `M0 ${HEIGHT}H${WIDTH}` }), svg("path", { class: "line", d: stems.join("") }));
}
