// Circuits that a change sets up and takes down: compared with the circuits at the change's start. A change
// that ends before the page sees it is compared with the reading before.

import { keyOf } from "./ring.js";

const NOTHING = { coming: new Set(), going: [] };
let epoch = null;
let before = null; // the circuits that stood before the change, by key
let last = null; // the circuits of the last reading, by key
let shown = NOTHING;

export function follow(topology, isMoving) {
  const now = new Map(topology.circuits.map((circuit) => [keyOf(circuit), circuit]));
  if (isMoving) before ??= last;
  else if (topology.epoch !== epoch && before === null) before = last;
  shown = before === null ? NOTHING : {
    coming: new Set([...now.keys()].filter((key) => !before.has(key))),
    going: [...before].filter(([key]) => !now.has(key)).map(([, circuit]) => circuit),
  };
  if (!isMoving) before = null;
  [epoch, last] = [topology.epoch, now];
}

export const change = () => shown;
